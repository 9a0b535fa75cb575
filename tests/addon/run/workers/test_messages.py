"""What supervisor and worker tell each other."""

from addon.run.workers.messages import Job, Listener, Report, job_of, line_of, report_of
from addon.telemetry.health import Health


def test_a_job_and_a_report_come_back_as_they_were():
    job = Job(
        number=2,
        words=("--set", "a=ü\n"),
        set_names=("a",),
        with_proxyauth=False,
        trusted="/t",
        listeners=(Listener(host="", port=0, descriptors=(3, 4)),),
        folder="/f",
        seat=1,
        seats=6,
    )
    assert line_of(job).count(b"\n") == 1
    assert job_of(line_of(job)) == job
    report = Report(metrics=("h", 1), health=Health(writer_alive=True, dropped=3))
    assert report_of(line_of(report)) == report
    assert report_of(line_of(Report())) == Report()
