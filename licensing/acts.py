"""Acts on licences, plans and held suspensions, and the pages of their rows."""

from config.platform.acts import Act, Page, Proof, Right, declare

PAGES = (
    Page("licensing.heldsuspension", ("licensing",)),
    Page("licensing.licence", ("support", "licensing")),
    Page("licensing.plan", ("support", "licensing")),
    Page("licensing.servicenotice", ("support", "licensing", "release")),
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
        "set the licence status of {}",
        "operator decided a licence's status",
        (
            Right("licensing.licence_status", ("licensing",)),
            Right("licensing.licence_suspend", ("licensing",)),
        ),
    ),
    Act(
        "licence:operator_cleared",
        "returned the licence of {} to billing",
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
        "licence:billing_set",
        "reported the licence status of {}",
        "billing's status of a licence changed",
    ),
    Act(
        "licence:customer_set",
        "set the Stripe customer of {}",
        "licence's customer at the payment processor changed or removed",
        (Right("licensing.licence_customer", ("licensing",)),),
    ),
    Act(
        "licence:minimum_set",
        "set the minimum version of {}",
        "minimum version of a client's shells changed or removed",
        (Right("accounts.client_minimum", ("release",), Proof.GRAVE),),
    ),
    Act(
        "licence:shell_set",
        "set where the shells of {} update from",
        "channel or pinned version of a client's shells changed",
        (Right("accounts.client_shell", ("licensing",)),),
    ),
    Act(
        "licence:message_set",
        "changed the message to {}",
        "message in a client's shells changed or removed",
        (Right("accounts.client_message", ("licensing",)),),
    ),
    Act(
        "service:minimum_set",
        "set the minimum version of {}",
        "minimum version of all shells changed or removed",
        (Right("licensing.servicenotice_minimum", ("release",), Proof.GRAVE),),
    ),
    Act(
        "service:shell_set",
        "set where {} update from",
        "channel or pinned version of all shells changed",
        (Right("licensing.servicenotice_shell", ("licensing",)),),
    ),
    Act(
        "service:message_set",
        "changed the message to {}",
        "message in all shells changed or removed",
        (Right("licensing.servicenotice_message", ("licensing",)),),
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
