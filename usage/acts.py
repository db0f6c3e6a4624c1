"""Acts on budgets, overrides, charges and running calls, and the pages of their rows."""

from config.platform.acts import Act, Page, Proof, Right, declare

PAGES = (
    Page("usage.alert", ("support", "licensing")),
    Page("usage.budget", ("support", "licensing")),
    Page("usage.monthlyusage", ("support", "licensing")),
    Page("usage.override", ("support", "licensing")),
    Page("usage.refusal", ("support", "licensing")),
    Page("usage.runningcall", ("support", "licensing")),
    Page("usage.spendlimit", ("support", "licensing")),
    Page("usage.stop", ("support", "licensing")),
    Page("usage.usagerecord", ("support", "licensing")),
)

ACTS = (
    Act(
        "client:budget_set",
        "set the budget of {}",
        "client's monthly budget set, changed or removed",
        (
            Right("accounts.client_budget", ("licensing",)),
            Right("usage.budget_add", ("licensing",)),
        ),
    ),
    Act(
        "client:budget_changed_by_hand",
        "changed the budget of {} in the database",
        "client's monthly budget changed by SQL: the database's role and each changed column",
    ),
    Act(
        "spend_limit:set",
        "set the spending limit of {}",
        "spending limit of the service or a provider set, changed or removed",
        (
            Right("usage.spendlimit_add", ("licensing",)),
            Right("usage.spendlimit_amounts", ("licensing",)),
        ),
    ),
    Act(
        "spend_limit:passed",
        "let calls pass the spending limit of {} for a day",
        "calls pass a spending limit for the rest of the day (UTC)",
        (Right("usage.spendlimit_pass", ("licensing",), Proof.GRAVE),),
    ),
    Act(
        "spend_limit:held",
        "enforced the spending limit of {} again",
        "calls no longer pass a spending limit that is reached",
        (Right("usage.spendlimit_hold", ("licensing",)),),
    ),
    Act(
        "spend_limit:changed_by_hand",
        "changed the spending limit of {} in the database",
        "spending limit changed by SQL: the database's role and each changed column",
    ),
    Act(
        "override:granted",
        "granted {} an override",
        "person given different caps until a date",
        (Right("usage.override_add", ("support", "licensing")),),
    ),
    Act(
        "override:extra_granted", "granted {} an extra allowance", "person given additional tokens"
    ),
    Act(
        "override:ended",
        "ended an override of {}",
        "override ended early",
        (Right("usage.override_end", ("support", "licensing")),),
    ),
    Act(
        "override:changed_by_hand",
        "changed an override of {} in the database",
        "person's override changed by SQL: the database's role and each changed column",
    ),
    Act(
        "charge:lowered",
        "lowered the charge of {}",
        "call was charged fewer tokens; the record keeps the first charge",
        (Right("usage.usagerecord_lower", ("licensing",), Proof.GRAVE),),
    ),
    Act(
        "user:model_calls_stopped",
        "stopped model calls of {}",
        "operator stopped a person's model calls",
        (Right("accounts.user_stop_calls", ("support",)),),
        details=("Stopped until {until}.", "Stopped until an operator restarts them."),
    ),
    Act(
        "user:model_calls_restarted",
        "restarted model calls of {}",
        "operator allowed a person's model calls again",
        (Right("accounts.user_restart_calls", ("support",)),),
        details=(
            "Restarted before {until}; had been stopped since {since}.",
            "Restarted; had been stopped since {since}.",
            "Restarted before {until}.",
            "Restarted.",
        ),
    ),
    Act(
        "user:model_call_ended",
        "ended a running call of {}",
        "operator ended one running call",
        (Right("usage.runningcall_end", ("support",)),),
    ),
    Act(
        "usage:exported",
        "exported usage",
        "operator exported calls of the ledger",
        (Right("usage.usagerecord_export", ("auditor", "licensing")),),
    ),
)

declare(ACTS, PAGES)
