"""A worker whose start is known to the millisecond: every cause, and labels that lie.

Everything is planted on purpose; `truth.py` writes what really happened to a side file. The
environment says where things are: PLANTED_TRUTH (the side file), PLANTED_COLD (a big file whose
pages were dropped), PLANTED_MAPPED (another), PLANTED_LOCK (a file whose lock somebody holds for a
while), PLANTED_SERVER (a port that answers late), PLANTED_BURN (a FIFO: what opens it keeps
processor PLANTED_CPU busy). With PLANTED_ONLY=imports only the imports happen; with PLANTED_END it
ends once it is ready.
"""

import ctypes
import fcntl
import mmap
import os
import socket
import subprocess
import sys
import threading
import time

from truth import Truth

TRUTH = Truth()

from burning import burn

CHILD = "import time\nend = time.thread_time() + 0.5\nwhile time.thread_time() < end: pass"
libc = ctypes.CDLL(None)
BUFFER = bytearray(16 << 20)


def say(text):
    print(text, flush=True)


def imports():
    say("loading checkpoint shards")  # a lie: it imports, and a dead component at that
    import dead_encoder

    TRUTH.row("dead component", "stolen")
    say("importing the live model")
    import live_model

    TRUTH.row("live import", "stolen")
    say("importing metrics")
    import unused_metrics

    TRUTH.row("unused import", "stolen")


def computing():
    say("loading weights")  # a lie: nothing is read
    burn(0.5)
    TRUTH.row("computing", "stolen")
    # By a C library, past sys.stdout, into the middle of a silence.
    libc.write(2, b"c library: kernels checked\n", 27)
    burn(0.3)
    libc.puts(b"c library: buffered line")
    libc.fflush(None)
    TRUTH.row("c writes", "stolen")


def sleeping():
    say("compiling kernels")  # a lie: most of it sleeps
    burn(0.15)
    TRUTH.row("compiling, a little", "stolen")
    time.sleep(0.45)
    TRUTH.row("asleep", "sleep")
    say("sleeping before a retry")
    time.sleep(0.3)
    TRUTH.row("asleep, honestly", "sleep")


def a_child():
    say("building the extension")
    words = [sys.executable, "-I", "-S", "-c", CHILD]
    child = subprocess.Popen(words)
    _, _, used = os.wait4(child.pid, 0)
    child.returncode = 0
    TRUTH.row("a child", "run_queue", by=(child.pid, used.ru_utime + used.ru_stime))


def cold_files():
    say("capturing graphs")  # a lie: it reads
    with open(os.environ["PLANTED_COLD"], "rb", buffering=0) as file:
        while file.readinto(BUFFER):
            pass
    TRUTH.row("cold file", "read", absorbs_cpu=True, file=os.environ["PLANTED_COLD"])
    say("reading the index")
    with open(os.environ["PLANTED_MAPPED"], "rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        total = sum(mapped[at] for at in range(0, len(mapped), 4096))
    TRUTH.row("mapped file", "fault_io", file=os.environ["PLANTED_MAPPED"])
    return total


def locks():
    say("downloading the tokenizer")  # a lie: somebody else holds a lock
    with open(os.environ["PLANTED_LOCK"]) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
    TRUTH.row("file lock", "lock")
    say("registering plugins")
    lock = threading.Lock()
    lock.acquire()

    def release():
        time.sleep(0.3)
        lock.release()

    threading.Thread(target=release).start()
    lock.acquire()
    TRUTH.row("thread lock", "lock")


def network():
    say("importing the models")  # a lie: it waits for a server
    with socket.create_connection(("127.0.0.1", int(os.environ["PLANTED_SERVER"]))) as server:
        server.recv(1)
    TRUTH.row("network", "network")


def crowded():
    say("warming up")  # a lie: another process has the processor
    before, cpu = os.sched_getaffinity(0), int(os.environ["PLANTED_CPU"])
    os.sched_setaffinity(0, {cpu})
    with open(os.environ["PLANTED_BURN"], "w") as burner:
        burner.write("go")
    burn(0.5)
    TRUTH.row("run queue", "stolen")
    os.sched_setaffinity(0, before)


def main():
    TRUTH.row("its own imports", "stolen")
    imports()
    if os.environ.get("PLANTED_ONLY") != "imports":
        computing()
        sleeping()
        a_child()
        cold_files()
        locks()
        network()
        crowded()
    say("ready")
    if "PLANTED_END" not in os.environ:
        time.sleep(3600)


main()
