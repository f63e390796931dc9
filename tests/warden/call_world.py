"""A warden for tests of calls, and a module of functions to call."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from tests.warden.warden_world import PATIENCE_S, TTL_S, World, spawn

from detent.clock import boottime, now
from detent.model import Call, Claim, End, Fire, Policy
from detent.runners.call.child_main import PROTOCOL
from detent.runners.call.spec import PROGRAM, CallSpec, call_spec, pool_spec
from detent.warden.client import TaskHandle, WardenClient

# What tests call.  `say` writes a file when it starts, and does not return.
FUNCTIONS = """
import asyncio, ctypes, fcntl, logging, os, signal, subprocess, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
import detent

COUNT = 0

def me(): return os.getpid()
def add(a, b=0): return a + b
def fire(fire):
    return [fire.key, fire.attempt, fire.fence, fire.due_at.isoformat(), os.environ["DETENT_FIRE"]]
def annotated(before: "detent.Fire", /, count, *, more=0): return [before.job, count, more]
async def double(n):
    await asyncio.sleep(0.01)
    return n * 2
def count():
    global COUNT
    COUNT += 1
    return COUNT
def write(what):
    print("print", what)
    sys.stderr.write(f"stderr {what}\\n")
    logging.getLogger("billing").info("logged %s", what)
    subprocess.run(["echo", "process", what])
    ctypes.CDLL(None).puts(f"c {what}".encode())
def write_much():
    fcntl.fcntl(1, fcntl.F_SETPIPE_SZ, 1 << 20)
    os.write(1, b"x" * 900_000 + b"the end")
def fail(): raise ValueError("no such\\n customer")
def leave(code): sys.exit(code)
async def leave_async(code): sys.exit(code)
def give(kind): return {"object": object(), "long": "x" * 70_000, "nan": float("nan"), "none": None}[kind]
def stay(path):
    process = subprocess.Popen(["sleep", "1000"])
    Path(path + ".new").write_text(f"{os.getpid()} {process.pid}")
    os.rename(path + ".new", path)
    time.sleep(1000)
def tidy(path):
    try:
        stay(path)
    finally:
        print("tidied up")
async def tidy_async(path):
    try:
        Path(path).write_text(str(os.getpid()))
        await asyncio.sleep(1000)
    except asyncio.CancelledError:
        await asyncio.sleep(0.01)
        print("cancelled, and tidied up")
        raise
def deaf(path):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    stay(path)
def close_output(): [os.close(fd) for fd in (1, 2)]
def leave_deaf_process():
    path = "deaf-process-is-ready"
    subprocess.Popen(["sh", "-c", f"trap '' TERM; touch {path}; sleep 1000; sleep 1000"])
    while not os.path.exists(path): time.sleep(0.005)
def exit_at_once(code): os._exit(code)
def crash(): os.kill(os.getpid(), signal.SIGSEGV)
def start(path, daemon):
    if daemon == "detached":
        script = f"echo $$ >{path}.new; mv {path}.new {path}; exec sleep 1000 >/dev/null 2>&1"
        subprocess.run(["setsid", "--fork", "sh", "-c", script])
        while not os.path.exists(path): time.sleep(0.005)
        return os.getpid()
    if daemon == "process":
        pid = subprocess.Popen(["sleep", "1000"], stdout=subprocess.DEVNULL).pid
    else:
        reader, writer = os.pipe()
        if os.fork() == 0:
            if daemon == "session":
                os.setsid()
            if os.fork() == 0:
                os.write(writer, str(os.getpid()).encode())
                time.sleep(1000)
            os._exit(0)
        pid = int(os.read(reader, 100))
    Path(path).write_text(str(pid))
    return os.getpid()
def come_back_twice(): return "the fork" if os.fork() == 0 else "the child"
def leave_a_thread(path, seconds=0.3):
    def work():
        time.sleep(seconds)
        Path(path).write_text("the thread has ended")
    threading.Thread(target=work, name="late").start()
    return os.getpid()
POOL = ThreadPoolExecutor(2)
def use_threads(kind, seconds=0.0):
    if kind == "executor":
        POOL.submit(time.sleep, 0).result()
    elif kind == "unfinished":
        POOL.submit(time.sleep, seconds)
    else:
        threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
    return os.getpid()
async def look_up():
    await asyncio.get_running_loop().getaddrinfo("localhost", 80)
    return await asyncio.to_thread(os.getpid)
def spoil():
    os.environ["SPOILT"] = "1"
    os.environ.pop("PATH")
    os.chdir("/")
    os.umask(0)
    sys.stdout = open(os.devnull, "w")
    sys.path.insert(0, "/spoilt")
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
def kept():
    print("still heard")
    return ["/spoilt" in sys.path, os.umask(0o22) == 0, signal.getsignal(signal.SIGTERM) == signal.SIG_IGN]
def around(): return [os.environ.get("SPOILT"), "PATH" in os.environ, os.getcwd(), os.environ.get("EXTRA")]
def meddle(): os.write(int(max(os.listdir("/proc/self/fd"), key=lambda fd: "socket" in link(fd))), b"[]\\n")
def link(fd):
    try: return os.readlink("/proc/self/fd/" + fd)
    except OSError: return ""
"""
LIGHT = """
import os, time
def me(): return os.getpid()
def wait_for(path):
    while not os.path.exists(path): time.sleep(0.01)
    return os.getpid()
"""


class CallWorld(World):
    """An instance of a node with calls."""

    def __init__(self, directory: Path, cgroup: str) -> None:
        super().__init__(directory, cgroup)
        (directory / "work.py").write_text(FUNCTIONS)
        (directory / "light.py").write_text(LIGHT)
        self.python, self.protocol = sys.executable, PROTOCOL

    def claim(self, policy: Policy) -> Claim:
        self.count += 1
        fire = Fire(f"a.b@{self.count}", "a.b", now(), run_id=f"{self.instance}-{self.count}", policy=policy)
        return Claim(fire, self.instance, self.count, attempt=1, ttl_s=TTL_S, expires_at=now())

    def call(self, function: str, *args: Any, timeout_s: float = 0.0, **fields: Any) -> CallSpec:
        claim = self.claim(Policy(timeout_s=timeout_s))
        module = "" if ":" in function else "work:"
        given = {"args": json.dumps(args), "work_dir": str(self.directory), "kill_after_s": 1.0, **fields}
        call = Call(module + function, **given)
        env = {"PATH": os.environ["PATH"], **dict(call.env)}
        pool = pool_spec(call, env, self.instance)._replace(words=(self.python, "-P", PROGRAM, self.protocol))
        return call_spec(claim, call, pool)

    def calls(self, *specs: CallSpec) -> list[End]:
        """Run these calls one after the other in one warden."""

        async def main() -> list[End]:
            async with self.processes() as processes:
                return [await carry_out(processes, spec) for spec in specs]

        return asyncio.run(main())


async def started(processes: WardenClient, spec: CallSpec, for_s: float = TTL_S) -> TaskHandle:
    work = await spawn(processes, spec, boottime() + for_s)
    assert work is not None
    return work


async def carry_out(processes: WardenClient, spec: CallSpec) -> End:
    work = await started(processes, spec)
    return await asyncio.wait_for(work.gone, PATIENCE_S)
