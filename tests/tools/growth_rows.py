"""The statements that make the rows of :mod:`tests.tools.growth`, each one ``INSERT … SELECT`` from a series.

People and clients are numbered from 0, and their ids follow from a number and the salt of a run, so that no statement
has to look one up. Times go forward with the number of a row, as in a table that is written to at its end.
"""

from string import Template

# By number ``p``, of a person; the square makes a few people busy and most of them less so.
_SOMEBODY = "floor(%(people)s * random() * random())::int"
_PERSON = "md5(%(salt)s || 'person' || p)::uuid"
_CLIENT = "md5(%(salt)s || 'client' || p %% %(clients)s)::uuid"
_EMAIL = "'person-' || p || '.' || %(salt)s || '@grown.invalid'"
# In place of gen_random_uuid(), which takes five times as long.
_ID = "md5(%(salt)s || '{kind}' || n)"
_ADDRESS = "('10.' || p / 65536 %% 256 || '.' || p / 256 %% 256 || '.' || p %% 256)::inet"
# Half way through its own share of the time, so that no two rows of a small run are of one moment.
_AT = "%(begin)s::timestamptz + %(span)s * ((n + 0.5) / %(rows)s)"

# By its number ``n``: used from its start until some moment of the time since, and then left or, one in four, signed
# out, lately enough to be still looked at.
_USED = "0.45 + 0.55 * (('x' || left(md5(%(salt)s || n), 7))::bit(28)::int / 268435456.0)"
_STARTED = "%(begin)s::timestamptz + (%(span)s - interval '10 minutes') * ((n + 0.5) / %(sessions)s::float8)"
_SESSION = f"""(
    SELECT n, n %% %(people)s AS p, md5(%(salt)s || 'session' || n)::uuid AS id, start,
           LEAST(start + (%(now)s - start) * ({_USED}), %(now)s - interval '1 minute') AS last
    FROM (SELECT n, {_STARTED} AS start FROM generate_series(0, %(sessions)s - 1) AS n) AS numbered
)"""
_HAS_ENDED = "n %% 4 = 0 AND last > %(now)s::timestamptz - interval '29 days'"


def _statement(text: str, *, rows: str = "") -> str:
    """With the expressions above in place of their names; ``rows`` is the value that says how many."""
    at = _AT.replace("%(rows)s", f"%({rows})s::float8")
    return Template(text).substitute(
        person=_PERSON,
        client=_CLIENT,
        email=_EMAIL,
        address=_ADDRESS,
        id=_ID.format(kind=rows),
        request=_ID.format(kind=f"request of {rows}"),
        session=_SESSION,
        has_ended=_HAS_ENDED,
        drawn=f"(SELECT n, {_SOMEBODY} AS p, {at} AS at FROM generate_series(0, %({rows})s - 1) AS n) AS row",
    )


# Its caps are set once it is known what has been used.
PLAN = """
INSERT INTO licensing_plan (name, entitlements, monthly_input_tokens, monthly_output_tokens, daily_tokens)
VALUES ('Grown ' || %(salt)s, '{notes,sheets}', NULL, NULL, NULL)
"""
# Twice what the busiest has used in a month or day: nobody stands at a share that an alert would tell of.
CAPS = """
UPDATE licensing_plan AS p
SET monthly_input_tokens = 2 * used.input, monthly_output_tokens = 2 * used.output, daily_tokens = 2 * used.day
FROM (
    SELECT max(m.input_used) AS input, max(m.output_used) AS output, max(m.input_used + m.output_used) AS day
    FROM usage_monthlyusage AS m
    JOIN accounts_user AS u ON u.id = m.user_id
    JOIN licensing_licence AS l ON l.client_id = u.client_id
    JOIN licensing_plan AS own ON own.id = l.plan_id AND own.name = 'Grown ' || %(salt)s
) AS used
WHERE p.name = 'Grown ' || %(salt)s
"""
CLIENTS = """
INSERT INTO accounts_client (id, name, created_at)
SELECT md5(%(salt)s || 'client' || n)::uuid, 'Grown ' || n || ' ' || %(salt)s, %(begin)s
FROM generate_series(0, %(clients)s - 1) AS n
"""
LICENCES = """
INSERT INTO licensing_licence
    (client_id, plan_id, entitlements, stripe_customer_id, billing_status, operator_reason, changed_at)
SELECT md5(%(salt)s || 'client' || n)::uuid, p.id, '{}', '', 'active', '', %(begin)s
FROM generate_series(0, %(clients)s - 1) AS n, licensing_plan AS p WHERE p.name = 'Grown ' || %(salt)s
"""
# A password that begins like this is one that nobody has.
PEOPLE = _statement("""
INSERT INTO accounts_user (
    id, email, email_form, password, client_id, is_active, is_staff, is_superuser, epoch, created_at
) SELECT $person, $email, $email, '!' || md5(random()::text) || 'grown', $client, true, false, false, 0, %(begin)s
FROM generate_series(0, %(people)s - 1) AS p
""")

RECORDS = _statement(
    """
INSERT INTO usage_usagerecord (
    id, user_id, client_id, session_id, period, day, model, provider, request_id, streamed, state, reserved_input,
    reserved_output, input_tokens, cached_input_tokens, output_tokens, reasoning_tokens, source, "end", opened_at,
    first_byte_at, expires_at, settled_at
)
SELECT $id::uuid, $person, $client, md5(%(salt)s || 'session' || n %% %(sessions)s)::uuid,
       date_trunc('month', at AT TIME ZONE 'UTC')::date, (at AT TIME ZONE 'UTC')::date,
       CASE WHEN n %% 10 < 7 THEN 'stand-in' WHEN n %% 1000 = 9 THEN 'stand-in-rare' ELSE 'stand-in-large' END,
       'openai', $request, n %% 3 > 0, 'settled', 200 + n %% 900, 4096,
       150 + n %% 800, CASE WHEN n %% 4 = 0 THEN 100 ELSE 0 END, 20 + n %% 400, 0,
       CASE WHEN n %% 500 = 0 THEN 'estimated' WHEN n %% 50 = 0 THEN 'counted' ELSE 'provider' END,
       CASE WHEN n %% 5000 = 0 THEN 'crashed' WHEN n %% 500 = 0 THEN 'provider_failed'
            WHEN n %% 50 = 0 THEN 'client_gone' ELSE 'done' END,
       at, at + interval '400 ms', at + interval '660 s', at + interval '5 s'
FROM $drawn
""",
    rows="records",
)
# The sums of the ledger, by the ledger; the worker counts each into daily usage.
MONTHS = """
WITH months AS (
    INSERT INTO usage_monthlyusage (user_id, period, input_used, input_reserved, output_used, output_reserved, day,
        day_used, day_reserved, granted)
    SELECT user_id, period, sum(input), 0, sum(output), 0, max(day),
           (array_agg(input + output ORDER BY day DESC))[1], 0, 0 FROM (
        SELECT user_id, period, day, sum(input_tokens) AS input, sum(output_tokens) AS output FROM usage_usagerecord
        WHERE user_id IN (SELECT md5(%(salt)s || 'person' || p)::uuid FROM generate_series(0, %(people)s - 1) AS p)
        GROUP BY user_id, period, day
    ) AS days GROUP BY user_id, period RETURNING id, period
)
INSERT INTO usage_countedmonth (month_id, version, from_day) SELECT id, '', period FROM months
"""

SESSIONS = _statement("""
INSERT INTO accounts_session (
    id, user_id, device_fp, started_at, started_from, last_used_at, last_used_from, ended_at, ended_by
)
SELECT id, $person, md5(%(salt)s || 'device' || n), start, $address, last, $address,
       CASE WHEN $has_ended THEN last END,
       CASE WHEN $has_ended THEN CASE WHEN n %% 400 = 0 THEN 'reuse' WHEN n %% 40 = 0 THEN 'revoked' ELSE 'logout' END
            ELSE '' END
FROM $session AS session
""")
# A token of thirty days for each place ``i`` in the chain of a session, all sessions' first ones first. The id is half
# of a token, whose other half nobody has: the hash is of nothing.
TOKENS = _statement("""
INSERT INTO accounts_refreshtoken (id, user_id, session_id, token_hash, device_fp, issued_at, expires_at,
    revoked_at, replaced_at, replaced_by_id, replaced_from)
SELECT md5(%(salt)s || n || '/' || i)::uuid, $person, id,
       '$$argon2id$$v=19$$m=1024,t=1,p=1$$' || left(encode(substr(hash, 1, 16), 'base64'), 22) || '$$'
           || left(encode(hash, 'base64'), 43),
       md5(%(salt)s || 'device' || n), start + step * i, start + step * i + interval '30 days',
       CASE WHEN $has_ended THEN last END,
       CASE WHEN is_replaced THEN start + step * (i + 1) END,
       CASE WHEN is_replaced THEN md5(%(salt)s || n || '/' || i + 1)::uuid END,
       CASE WHEN is_replaced THEN $address END
FROM (
    SELECT s.*, i, (last - start) / 100 AS step, sha256((%(salt)s || n || ' ' || i)::bytea) AS hash,
           i < 99 AND i * %(sessions)s + n + %(sessions)s < %(tokens)s AS is_replaced
    FROM generate_series(0, 99) AS i, $session AS s
    WHERE i * %(sessions)s + n < %(tokens)s
) AS token
""")

AUDIT = _statement(
    """
INSERT INTO accounts_auditevent (at, action, actor, actor_id, target, target_id, address, request_id, reason, after)
SELECT at,
       CASE WHEN n %% 10 < 7 THEN 'session:started' WHEN n %% 1000 = 7 THEN 'user:password_set'
            WHEN n %% 10000 = 18 THEN 'session:token_reused' ELSE 'session:ended' END,
       $email, $person, $email,
       CASE WHEN n %% 1000 = 7 THEN $person ELSE $id::uuid END, $address, $request, '',
       CASE WHEN n %% 10 >= 7 AND n %% 1000 <> 7 THEN '{"ended_by": "logout"}'::jsonb END
FROM $drawn
""",
    rows="audit",
)
# One good run of each job a night.
NIGHTS = """
INSERT INTO accounts_auditevent (at, action, actor, target, target_id, request_id, reason, after)
SELECT at, 'nightly:done', 'manage.py nightly', job, job, '', '',
       '{"says": "0 people, 95th percentile -", "seconds": 0.1, "host": "grown"}'
FROM generate_series(%(begin)s::timestamptz, %(now)s::timestamptz, interval '1 day') AS at,
     unnest(ARRAY['sync_subscriptions', 'expire_grace', 'check_usage_alerts', 'learn_token_factors', 'prune_audit_log',
         'prune_refresh_tokens', 'prune_personal_keys', 'prune_refusals', 'count_telemetry', 'prune_telemetry']) AS job
"""

# Twenty apps, ten versions, thirty names; ids at random, which is the worst that shells can do.
EVENTS = _statement(
    """
INSERT INTO telemetry_event
    (event_id, client_id, user_id, name, app, shell_version, occurred_at, received_at, properties)
SELECT $id::uuid, $client, $person, 'event.' || n %% 30,
       CASE WHEN n / 30 %% 20 = 0 THEN '' ELSE 'app-' || n / 30 %% 20 END, '1.0.' || n / 600 %% 10,
       at - interval '20 s', at, '{"ms": 12, "kind": "sheet", "from": "the list of files"}'
FROM $drawn
""",
    rows="events",
)
