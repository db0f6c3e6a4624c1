"""Acts of the worker and its jobs, and the page of jobs."""

from config.composition.operation.nightly import JOBS
from config.platform.acts import Act, Page, Proof, Right, declare

# The nightly jobs, whose events have the names of their commands.
_JOBS = {job.name: f"“{job.title}”" for job in JOBS if job.title}
PAGES = (Page("procrastinate.procrastinatejob", ("support", "release")),)

ACTS = (
    Act(
        "job:failed",
        "failed permanently: {}",
        "a queued job failed on every attempt: the kind of its error, without its arguments",
    ),
    Act(
        "job:retried",
        "retried the job {}",
        "operator queued a failed job again",
        (
            Right("procrastinate.procrastinatejob_retry", ("support", "release")),
            Right("procrastinate.procrastinatejob_retry_alike", ("support", "release")),
        ),
    ),
    Act(
        "job:discarded",
        "discarded the job {}",
        "operator discarded a failed job",
        (Right("procrastinate.procrastinatejob_discard", proof=Proof.GRAVE),),
    ),
    Act(
        "alarm:raised",
        "emailed operators: {}",
        "operators were emailed that an alert has started",
    ),
    Act("alarm:cleared", "reported the end of: {}", "condition ended"),
    Act(
        "nightly:begun",
        "started the nightly jobs",
        "manage.py nightly started, with its list of jobs",
    ),
    Act("nightly:done", "finished the nightly job {}", "nightly job succeeded", names=_JOBS),
    Act("nightly:failed", "failed in the nightly job {}", "nightly job failed", names=_JOBS),
)

declare(ACTS, PAGES)
