"""The files at work: HAProxy in front of two proxies, PgBouncer in front of the shared ledger."""

import contextlib
import http.client
import http.server
import json
import re
import shutil
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest
import sqlalchemy as sa

from addon.deploy.kinds import write
from ledger.store import db
from ledger.sync.merging import sync
from tests.ledger.written import put, settled, whole

pytestmark = pytest.mark.process
SECONDS_MAX = 30


def needs(program):
    return pytest.mark.skipif(not shutil.which(program), reason=f"{program} is not installed")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Proxy:
    """Stands for one proxy: answers with its name, and says whether it is ready."""

    def __init__(self, name):
        proxy = self
        self.is_ready = True

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                status = 200 if proxy.is_ready or self.path != "/readyz" else 503
                body = name.encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@contextlib.contextmanager
def started(*command):
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=SECONDS_MAX)


@contextlib.contextmanager
def passable(folder):
    """PgBouncer does not run as root, and must reach the server's socket."""
    mode = folder.stat().st_mode
    folder.chmod(0o711)
    try:
        yield
    finally:
        folder.chmod(mode)


def ask(port):
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=5)) as client:
        client.request("GET", "/v1/models")
        answer = client.getresponse()
        return answer.status, answer.read().decode()


def until(condition):
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, http.client.HTTPException, sa.exc.DBAPIError):
            if condition():
                return
        time.sleep(0.1)
    raise AssertionError("it did not come about")


@needs("haproxy")
def test_haproxy_sends_requests_to_proxies_that_are_ready(tmp_path):
    write("compose", tmp_path)
    proxies = [Proxy("one"), Proxy("two")]
    port = free_port()
    text = (tmp_path / "haproxy" / "haproxy.cfg").read_text()
    text = text.replace("bind *:8001", f"bind 127.0.0.1:{port}")
    text = text.replace("bind *:8002", f"bind 127.0.0.1:{free_port()}")
    text = text.replace("init-addr none resolvers docker", "inter 200ms rise 1 fall 1")
    for number, proxy in enumerate(proxies, start=1):
        text = re.sub(
            rf"proxy-{number}:800\d check port 9464", f"127.0.0.1:{proxy.port} check", text
        )
    config = tmp_path / "haproxy.cfg"
    config.write_text(text.partition("\nresolvers docker")[0] + "\n")
    try:
        with started("haproxy", "-db", "-f", str(config)):
            until(lambda: {ask(port)[1] for _ in range(6)} == {"one", "two"})
            proxies[0].is_ready = False
            until(lambda: {ask(port) for _ in range(6)} == {(200, "two")})
    finally:
        for proxy in proxies:
            proxy.close()


@pytest.mark.postgres
@needs("pgbouncer")
def test_a_ledger_behind_pgbouncer(tmp_path, new_postgres):
    """Transaction pooling: a ledger is merged in and read, through the file that we write."""
    target = sa.make_url(new_postgres())
    write("compose", tmp_path)
    port = free_port()
    text = (tmp_path / "pgbouncer" / "pgbouncer.ini").read_text()
    upstream = f"tokentee = host={target.query['host']} dbname={target.database} user=postgres"
    text = re.sub(r"tokentee = .*", upstream, text)
    text = text.replace("listen_addr = *", "listen_addr = 127.0.0.1\nunix_socket_dir =")
    text = text.replace("listen_port = 6432", f"listen_port = {port}")
    text = re.sub(r"auth_type = .*\nauth_file = .*", "auth_type = any", text)
    config = tmp_path / "pgbouncer.ini"
    config.write_text(text)
    for path in (tmp_path, config):
        path.chmod(0o755 if path.is_dir() else 0o644)
    source = f"sqlite:///{tmp_path / 'source.sqlite3'}"
    engine = db.ensure(source)
    put(engine, whole(settled("a")), whole(settled("b")))
    engine.dispose()
    url = f"postgresql+psycopg://postgres@127.0.0.1:{port}/tokentee"
    sockets = Path(str(target.query["host"]))
    with passable(sockets), started("pgbouncer", "-u", "nobody", str(config)):

        def is_up():
            engine = db.open_engine(url)
            try:
                with engine.connect() as connection:
                    return connection.scalar(sa.text("SELECT 1")) == 1
            finally:
                engine.dispose()

        until(is_up)
        sync(source, url)
        sync(source, url)
        engine = db.open_engine(url)
        with engine.connect() as connection:
            assert connection.scalar(sa.text("SELECT count(*) FROM requests")) == 2
        engine.dispose()


def test_the_health_check_of_the_image_is_python(tmp_path):
    """The command of HEALTHCHECK runs as it stands, and fails where nobody answers."""
    write("docker", tmp_path)
    text = (tmp_path / "Dockerfile").read_text()
    found = re.search(r"HEALTHCHECK.*?CMD (\[.*?\])\n", text, re.DOTALL)
    assert found is not None
    command = json.loads(found[1])
    proxy = Proxy("one")
    probe = command[2].replace("9464", str(proxy.port))
    try:
        assert subprocess.run(["python3", "-c", probe], check=False).returncode == 0
        proxy.is_ready = False
        failed = subprocess.run(["python3", "-c", probe], check=False, capture_output=True)
        assert failed.returncode != 0
    finally:
        proxy.close()
