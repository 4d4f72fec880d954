"""A worker of a pool that does what its job tells it, right or wrong. Nothing of Treadle is imported here."""

import json
import os
import signal
import sys
import time


def say(**message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def end(run, status="succeeded", **more):
    say(type="outcome", id=run["id"], status=status, **more)


def note(file, pid):
    with open(file, "w") as opened:
        opened.write(str(pid))


def act(run):
    act, given = run["args"]["act"], run["args"].get("given")
    match act:
        case "echo":
            end(run, result={"given": given, "pid": os.getpid(), "run": run})
        case "status":
            end(run, **given)
        case "say":  # whatever it is
            sys.stdout.write(given + "\n")
            sys.stdout.flush()
            time.sleep(30)
        case "other id":
            say(type="outcome", id="another", status="succeeded")
            time.sleep(30)
        case "twice":
            end(run, result=1)
            end(run, result=2)
        case "long line":
            sys.stdout.write("x" * (6 * 1024 * 1024))
            sys.stdout.flush()
            time.sleep(30)
        case "silent":
            time.sleep(given or 30)
            end(run, result="late")
        case "beats":
            for _ in range(6):
                time.sleep(0.1)
                say(type="heartbeat", id=run["id"])
            end(run, result="alive")
        case "die":
            print("I see a light", file=sys.stderr, flush=True)
            os.kill(os.getpid(), getattr(signal, given))
        case "exit":
            sys.exit(given)
        case "deaf":  # to a cancel, and to TERM
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            note(given, os.getpid())
            time.sleep(30)
        case "obeys":
            note(given, os.getpid())
            order = json.loads(sys.stdin.readline())
            end(run, "cancelled" if order == {"type": "cancel", "id": run["id"]} else "fail")
        case "too late":  # has done it when it hears of the cancel
            note(given, os.getpid())
            sys.stdin.readline()
            end(run, result="done all the same")
        case "reports":
            say(type="log", id=run["id"], level="warning", message="careful")
            print("on stderr", file=sys.stderr, flush=True)
            say(type="progress", id=run["id"], done=3, total=4, note="nearly")
            time.sleep(given)
            end(run)
        case "chatter":
            for n in range(5000):
                say(type="log", id=run["id"], message=f"line {n}")
            end(run, result="quiet")
        case "flood":
            sys.stderr.write("y\n" * 200_000)
            end(run, result="dry")
        case "mute":
            os.close(1)
            time.sleep(30)
        case "closes its ears":
            os.close(0)
            end(run, result="the last one")
            time.sleep(30)
        case "grandchild":
            pid = os.spawnv(os.P_NOWAIT, "/bin/sleep", ["sleep", "60"])
            note(given, pid)
            os.kill(os.getpid(), signal.SIGKILL)


def main(how):
    if how == "dies at once":
        print("no such module, token=abc123", file=sys.stderr)
        sys.exit(3)
    for line in sys.stdin:
        order = json.loads(line)
        if order["type"] == "hello":
            if how == "never ready":
                time.sleep(30)
            say(type="ready", protocol=2 if how == "newer" else 1)
        elif order["type"] == "run":
            act(order)
    if how == "stays":
        time.sleep(30)


main(sys.argv[1])
