#!/usr/bin/env bash
# Injects faults around a real GPU without touching it (environment, library paths, stand-in packages, mount namespaces), asks the doctor, and
# prints a Markdown table. Exits with 1 when a row is not as expected. Run as root on a machine with a working GPU:
#   tests/gpu/inject.sh build/release/bin/fullwatt [python]
set -u
fullwatt="$(realpath "$1")"
python="${2:-python3}"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
failed=0
rows=0

# What the doctor says: root cause, or the warnings where nothing is broken, or "nothing".
verdict() {
  "$python" -c '
import json, sys
report = json.load(sys.stdin)
wrong = [f["id"] for f in report["findings"] if f["severity"] in ("warning", "error") and not f["consequence_of"]]
print((report["root_cause"] or "nothing broken") + " | " + (", ".join(f for f in wrong if f != report["root_cause"]) or "–"))'
}

# row NAME EXPECTED COMMAND…: EXPECTED must be the root cause or among the other findings ("none": neither).
row() {
  local name="$1" expected="$2" answer ok=yes
  shift 2
  answer="$("$@" 2> "$work/err" | verdict 2>> "$work/err")"
  case "$expected" in
    none) [ "$answer" = "nothing broken | –" ] || ok=NO ;;
    *) case "| $answer |" in *" $expected "* | *" $expected,"*) ;; *) ok=NO ;; esac ;;
  esac
  rows=$((rows + 1))
  [ $ok = yes ] || { failed=$((failed + 1)); tail -n 3 "$work/err" >&2; }
  printf '| %s | %s | %s | %s |\n' "$name" "\`$expected\`" "$answer" "$ok"
}
doctor() { "$fullwatt" doctor --json --python "$python" "$@"; }
with() { env "$@"; }

# Inside a container the same missing or closed nodes have another cause, and another id.
in_container="$(doctor --no-torch | "$python" -c 'import json, sys; print(json.load(sys.stdin)["machine"]["driver"]["container"]["kind"])')"
nodes_missing="${in_container:+container-no-gpu-flag}"
nodes_closed="${in_container:+container-nonroot-gid}"

# A stand-in torch package: $1 folder, $2 its __init__.py, $3 its version.py.
stand_in() {
  mkdir -p "$1/torch"
  printf '%s\n' "$2" > "$1/torch/__init__.py"
  printf '%s\n' "$3" > "$1/torch/version.py"
}
stand_in "$work/cpu" 'from . import version
__version__ = "2.11.0+cpu"
class cuda:
    is_available = staticmethod(lambda: False)
    device_count = staticmethod(lambda: 0)
    get_arch_list = staticmethod(lambda: [])
' '__version__ = "2.11.0+cpu"
cuda = None
hip = None'
# An environment of its own that holds nothing but a CPU build.
"$python" -m venv --without-pip "$work/env"
cp -r "$work/cpu/torch" "$(echo "$work"/env/lib/python3*/site-packages)/"
stand_in "$work/broken" 'import ctypes
ctypes.CDLL("libnot-there.so.1")' '__version__ = "2.11.0+cu130"
cuda = "13.0"'

# A stub libcuda that answers every cuInit as NVIDIA'"'"'s link-time stub does: 34.
mkdir -p "$work/stubs"
printf 'int cuInit(unsigned f) { (void)f; return 34; }\nint cuDriverGetVersion(int* v) { *v = 0; return 34; }\n' > "$work/stub.c"
gcc -shared -fPIC -Wl,-soname,libcuda.so.1 -o "$work/stubs/libcuda.so.1" "$work/stub.c"

# Runs a command where some device nodes are missing or closed: a private /dev in a mount namespace.
private_dev() {
  local keep="$1" mode="$2"
  shift 2
  unshare --mount bash -c '
    keep="$1"; mode="$2"; shift 2
    mkdir -p "'"$work"'/dev"; mount -t tmpfs tmpfs "'"$work"'/dev"
    for node in null zero full random urandom tty; do cp -a /dev/$node "'"$work"'/dev/"; done
    mkdir "'"$work"'/dev/shm" "'"$work"'/dev/pts"; mount --bind /dev/shm "'"$work"'/dev/shm"
    ln -s /proc/self/fd "'"$work"'/dev/fd"; ln -s /proc/self/fd/0 "'"$work"'/dev/stdin"; ln -s /proc/self/fd/1 "'"$work"'/dev/stdout"; ln -s /proc/self/fd/2 "'"$work"'/dev/stderr"
    for node in $keep; do [ -e /dev/$node ] && cp -a /dev/$node "'"$work"'/dev/" && chmod "$mode" "'"$work"'/dev/$node"; done
    mount --move "'"$work"'/dev" /dev
    exec "$@"' private_dev "$keep" "$mode" "$@"
}
all_nodes="nvidiactl nvidia0 nvidia-uvm nvidia-uvm-tools"

echo "| injected | expected | root cause found | other findings | as expected |"
echo "|---|---|---|---|---|"
row "nothing" none doctor
row "CUDA_VISIBLE_DEVICES empty" cvd-hides-all with CUDA_VISIBLE_DEVICES= "$fullwatt" doctor --json --python "$python"
row "CUDA_VISIBLE_DEVICES=-1" cvd-hides-all with CUDA_VISIBLE_DEVICES=-1 "$fullwatt" doctor --json --python "$python"
row "CUDA_VISIBLE_DEVICES=7" cvd-index-out-of-range with CUDA_VISIBLE_DEVICES=7 "$fullwatt" doctor --json --python "$python"
row "CUDA_VISIBLE_DEVICES=GPU-deadbeef" cvd-bad-uuid with CUDA_VISIBLE_DEVICES=GPU-deadbeef "$fullwatt" doctor --json --python "$python"
row "a stub libcuda first on LD_LIBRARY_PATH" libcuda-stub-loaded with LD_LIBRARY_PATH="$work/stubs" "$fullwatt" doctor --json --python "$python"
row "an environment with a CPU-only torch" torch-cpu-wheel "$fullwatt" doctor --json --python "$work/env/bin/python"
row "a CPU-only torch first on PYTHONPATH, hiding the good one" torch-other-environment with PYTHONPATH="$work/cpu" "$fullwatt" doctor --json --python "$python"
row "a torch whose import fails" torch-import-fails with PYTHONPATH="$work/broken" "$fullwatt" doctor --json --python "$python"
row "CUDA_LAUNCH_BLOCKING=1" launch-blocking-on with CUDA_LAUNCH_BLOCKING=1 "$fullwatt" doctor --json --python "$python"
row "NVIDIA_TF32_OVERRIDE=0" tf32-override-env with NVIDIA_TF32_OVERRIDE=0 "$fullwatt" doctor --json --python "$python"
row "PYTORCH_NO_CUDA_MEMORY_CACHING=1" allocator-caching-off with PYTORCH_NO_CUDA_MEMORY_CACHING=1 "$fullwatt" doctor --json --python "$python"
row "CUDA_CACHE_DISABLE=1" jit-cache-disabled with CUDA_CACHE_DISABLE=1 "$fullwatt" doctor --json --python "$python"
row "NCCL_SOCKET_IFNAME names no interface" nccl-wrong-interface with NCCL_SOCKET_IFNAME=nosuch0 "$fullwatt" doctor --json --python "$python"
row "only one processor allowed" cpu-affinity-one-core taskset -c 0 "$fullwatt" doctor --json --python "$python"
row "address space limited to 16 GiB" address-space-limit bash -c 'ulimit -v 16777216; exec "$@"' limited "$fullwatt" doctor --json --python "$python"
chmod 755 "$work"
row "no /dev/nvidia-uvm, root (CUDA makes the node anew)" none private_dev "nvidiactl nvidia0" 0666 "$fullwatt" doctor --json --python "$python"
row "no /dev/nvidia-uvm, an ordinary user" uvm-not-loaded private_dev "nvidiactl nvidia0" 0666 setpriv --reuid=65534 --regid=65534 --clear-groups "$fullwatt" doctor --json --python "$python"
row "no NVIDIA nodes in /dev, an ordinary user" "${nodes_missing:-dev-nodes-missing}" private_dev "" 0666 setpriv --reuid=65534 --regid=65534 --clear-groups "$fullwatt" doctor --json --python "$python"
row "nodes of mode 0660, an ordinary user" "${nodes_closed:-dev-node-permission}" private_dev "$all_nodes" 0660 setpriv --reuid=65534 --regid=65534 --clear-groups "$fullwatt" doctor --json --python "$python"
printf 'step 100 loss 0.3\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 139.80 GiB\n' > "$work/oom.log"
row "a log that ends out of memory" out-of-memory doctor --log "$work/oom.log"

# A training on the CPU and one on the GPU, both looked at while they run.
"$python" -c 'import torch, time
x = torch.ones(64, 64)
while True: x = (x @ x).clamp(0, 1); time.sleep(0.01)' & cpu=$!
"$python" -c 'import torch, time
x = torch.ones(64, 64, device="cuda")
while True: x = (x @ x).clamp(0, 1); time.sleep(0.01)' & gpu=$!
for _ in $(seq 60); do grep -q libtorch "/proc/$cpu/maps" && ls -l "/proc/$gpu/fd" 2> /dev/null | grep -q nvidia-uvm && break; sleep 0.5; done
row "--pid of a training on the CPU" model-on-cpu doctor --pid "$cpu"
row "--pid of a training on the GPU" none doctor --pid "$gpu"
kill "$cpu" "$gpu"
wait 2> /dev/null

echo
echo "$((rows - failed)) of $rows as expected."
[ $failed = 0 ]
