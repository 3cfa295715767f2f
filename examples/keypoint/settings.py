"""Reads config.yaml."""


def value_of(text):
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return {"true": True, "false": False}.get(text, text)


def read_without_yaml(text):
    """Sections of plain values, for machines without PyYAML."""
    sections = {}
    for line in text.splitlines():
        line = line.split("#")[0].rstrip()
        key, _, value = line.strip().partition(":")
        if line and not line.startswith(" "):
            current = sections.setdefault(key, {})
        elif line:
            current[key] = value_of(value.strip())
    return sections


def load(path):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    try:
        import yaml
    except ImportError:
        return read_without_yaml(text)
    config = yaml.safe_load(text)
    return {name: {key: value_of(str(value)) if isinstance(value, str) else value for key, value in section.items()} for name, section in config.items()}
