"""Acts on licences, plans and held suspensions, and the pages of their rows."""

from config.platform.acts import Act, Page, Right, declare

PAGES = (
    Page("licensing.heldsuspension", ("licensing",)),
    Page("licensing.licence", ("support", "licensing")),
    Page("licensing.plan", ("support", "licensing")),
)

ACTS = (
    Act(
        "client:created",
        "added the client {}",
        "client and its licence created",
        (Right("accounts.client_add", ("licensing",)),),
    ),
    Act(
        "licence:operator_set",
        "decided the licence of {}",
        "operator decided a licence's status",
        (
            Right("licensing.licence_status", ("licensing",)),
            Right("licensing.licence_suspend", ("licensing",)),
        ),
    ),
    Act(
        "licence:operator_cleared",
        "left the licence of {} to billing",
        "that decision was withdrawn or expired",
        (Right("licensing.licence_resume", ("licensing",)),),
    ),
    Act(
        "licence:terms_set",
        "changed the licence terms of {}",
        "terms of a licence changed",
        (Right("licensing.licence_terms", ("licensing",)),),
    ),
    Act(
        "licence:changed_by_hand",
        "changed the licence of {} in the database",
        "licence changed by SQL: the database's role and each changed column",
    ),
    Act(
        "licence:billing_set", "reported the licence of {}", "billing's status of a licence changed"
    ),
    Act(
        "licence:customer_set",
        "set the Stripe customer of {}",
        "licence's customer at the payment processor changed or removed",
        (Right("licensing.licence_customer", ("licensing",)),),
    ),
    Act("brake:held", "held the suspensions of {}", "billing's change of too many clients held"),
    Act(
        "brake:confirmed",
        "confirmed the held suspensions of {}",
        "operator confirmed a held change",
        (Right("licensing.heldsuspension_confirm", ("licensing",)),),
    ),
    Act(
        "plan:added",
        "added the plan {}",
        "plan added",
        (Right("licensing.plan_add", ("licensing",)),),
    ),
    Act(
        "plan:changed",
        "changed the plan {}",
        "plan changed",
        (Right("licensing.plan_terms", ("licensing",)),),
    ),
    Act(
        "plan:changed_by_hand",
        "changed the plan {} in the database",
        "plan changed or deleted by SQL: the database's role and each changed column",
    ),
)

declare(ACTS, PAGES)
