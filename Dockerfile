# One image for everything that runs: the service (its CMD), the worker and management commands.
ARG PYTHON=python:3.12-slim-bookworm

FROM ${PYTHON} AS environment
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/venv
COPY requirements.lock .
# Wheels only: nothing is compiled, so no compiler is needed and no package runs code of its own here.
RUN /opt/venv/bin/pip install --require-hashes --only-binary :all: --requirement requirements.lock \
    && /opt/venv/bin/pip uninstall --yes pip

FROM ${PYTHON}
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    HOST=0.0.0.0 \
    PORT=8000
# The user owns nothing but the folder for STORAGE_URL=file:///srv/storage.
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin shell \
    && install --directory --owner=shell --group=shell /srv/storage
COPY --from=environment /opt/venv /opt/venv
WORKDIR /srv/service
# What comes along is named in .dockerignore.
COPY . .
RUN python -m compileall -q .
USER shell
EXPOSE 8000

# Whether the process answers, not whether its database does: a restart would not bring that back.
HEALTHCHECK --interval=15s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import http.client, os; c = http.client.HTTPConnection('127.0.0.1', int(os.environ['PORT']), timeout=4); c.request('GET', '/livez'); raise SystemExit(c.getresponse().status != 204)"]

# On SIGTERM running streams may end by themselves, which takes up to LLM_MAX_SECONDS, DRAIN_SECONDS and 30 s: grant that much.
STOPSIGNAL SIGTERM
CMD ["gunicorn", "-c", "python:config.gunicorn", "config.wsgi:application"]
