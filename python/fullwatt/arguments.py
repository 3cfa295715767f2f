"""The arguments that the program parsed with argparse: values, defaults, and which were given."""

from .agent import BEFORE_TRAINING

SECRETS = ("key", "token", "secret", "password", "passwd", "credential")


def install(argparse, agent):
    """Hooks ArgumentParser; parse_args calls parse_known_args itself."""
    parsing = [0]

    def make(original):
        def parse_known_args(self, *args, **kwargs):
            parsing[0] += 1
            try:
                result = original(self, *args, **kwargs)
            finally:
                parsing[0] -= 1
            if parsing[0] == 0:
                agent.attempt(tell, self, args[0] if args else kwargs.get("args"), result)
            return result

        return parse_known_args

    def tell(parser, given, result):
        values = dict(vars(result[0])) if isinstance(result, tuple) else {}
        agent.facts.add(
            "argument",
            parser=agent.sites.here(),
            values=hidden(values),
            defaults=hidden(defaults(parser)),
            given=names_given(parser, given),
        )

    agent.patches.replace(argparse.ArgumentParser, "parse_known_args", make, BEFORE_TRAINING)


def defaults(parser):
    """What each argument would be without being given."""
    return {
        action.dest: parser.get_default(action.dest)
        for action in parser._actions
        if action.dest not in ("help", "==SUPPRESS==") and action.default != "==SUPPRESS=="
    }


def names_given(parser, given):
    """Arguments that stand on the command line; of an abbreviated option the long name."""
    import sys

    words = [str(word) for word in (sys.argv[1:] if given is None else given)]
    words = [word.split("=", 1)[0] for word in words if word.startswith(tuple(parser.prefix_chars))]
    found = []
    for action in parser._actions:
        options = action.option_strings
        is_given = any(word == option or is_abbreviation(word, option) or is_joined(word, option) for word in words for option in options)
        if is_given and action.dest not in found:
            found.append(action.dest)
    return found


def is_abbreviation(word, option):
    """--learn for --learning-rate."""
    return word.startswith("--") and len(word) > 2 and option.startswith(word)


def is_joined(word, option):
    """-b32 for -b 32."""
    return len(option) == 2 and not word.startswith("--") and word.startswith(option)


def hidden(values):
    """Secrets are nobody's business."""
    return {
        name: "(hidden)" if value and any(word in str(name).lower() for word in SECRETS) and isinstance(value, str) else value
        for name, value in values.items()
    }
