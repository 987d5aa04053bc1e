"""A worker that was stopped for a while, or whose machine was, sends nothing that another may send by now."""

import os
import queue
import signal
import ssl
import subprocess
import sys
import time
from pathlib import Path

import pytest
import trustme

from domain.webhooks import Answered, Failed, FailureKind
from gateways import exchange
from gateways.exchange import uptime
from gateways.webhook import Sender
from settings import ROOT
from tests.gateways.conftest import ServerContext
from tests.gateways.posts import post
from tests.gateways.receiver import Request, Talk, answer, hanging, receiving, saying


def test_an_attempt_that_comes_too_late_is_not_begun(sender: Sender) -> None:
    with receiving(saying(answer())) as receiver:
        late = sender.send(post(receiver.url, not_after=uptime() - 0.001))
        assert receiver.connections == 0
        assert sender.send(post(receiver.url, not_after=uptime() + 5)) == Answered(200, "ok", None, receiver.peer)
    assert late == Failed(FailureKind.OURS, "this worker stood still since it took the delivery", None, sent=False)


def test_a_process_stopped_in_the_handshake_sends_nothing_once_it_goes_on(
    authority: trustme.CA, ca_file: Path, serve_with: ServerContext
) -> None:
    process: queue.Queue[int] = queue.Queue()
    heard: list[bytes] = []

    def stop_it(talk: Talk) -> None:
        came, goes = ssl.MemoryBIO(), ssl.MemoryBIO()
        server = serve_with(authority.issue_cert("localhost")).wrap_bio(came, goes, server_side=True)
        came.write(talk.sock.recv(65536))
        pid = process.get(timeout=10)
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(ssl.SSLWantReadError):
            server.do_handshake()
        talk.say(goes.read())
        talk.over.wait(0.3 + exchange._STOOD_STILL + 0.2)
        os.kill(pid, signal.SIGCONT)
        heard.append(talk.sock.recv(65536))

    with receiving(hanging, greet=stop_it) as receiver:
        url = receiver.url.replace("http:", "https:")
        with subprocess.Popen(
            [sys.executable, "-m", "tests.gateways.frozen", url, str(ca_file)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        ) as child:
            process.put(child.pid)
            said, _ = child.communicate(timeout=20)
        assert receiver.finished.acquire(timeout=5)
    detail = "this worker stood still in the TLS handshake"
    assert said == repr(Failed(FailureKind.OURS, detail, receiver.peer, sent=False))
    assert heard == [b""]


def test_an_answer_missed_by_a_machine_that_slept_is_no_fault_of_the_receivers(
    sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    def while_it_sleeps(talk: Talk, _: Request) -> None:
        monkeypatch.setattr(exchange, "uptime", lambda: uptime() + 3600)
        talk.say(b"HTTP/1.1 2")
        talk.over.wait(5)

    with receiving(while_it_sleeps) as receiver:
        came = sender.send(post(receiver.url))
    detail = "this worker stood still waiting for the answer"
    assert came == Failed(FailureKind.OURS, detail, receiver.peer, sent=True)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere monotonic goes on while the machine sleeps")
def test_the_clock_counts_the_time_a_machine_is_suspended() -> None:
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    now = uptime()
    assert before <= now <= time.clock_gettime(time.CLOCK_BOOTTIME)
