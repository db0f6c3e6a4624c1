"""Acts on people, operators, sessions, keys, connections and clients, and the pages of their rows."""

from config.platform.acts import Act, Page, Proof, Right, declare

PAGES = (
    Page("accounts.auditevent", ("support", "licensing")),
    Page("accounts.client", ("support", "licensing", "release")),
    Page("accounts.connection", ("support",)),
    Page("accounts.connectionrevocation", ("support",)),
    Page("accounts.operator"),
    Page("accounts.refreshtoken", ("support",)),
    Page("accounts.session", ("support",)),
    Page("accounts.signingkey"),
    Page("accounts.user", ("support", "licensing")),
)

ACTS = (
    Act(
        "user:created",
        "added {}",
        "person added or imported",
        (Right("accounts.user_add", ("licensing",)),),
    ),
    Act(
        "user:email_changed",
        "changed the email of {}",
        "operator changed an email; the old address was emailed",
        (
            # A person's email or one-time password lets the operator who sets it enter as that person.
            Right("accounts.user_email", proof=Proof.GRAVE),
        ),
    ),
    Act(
        "user:moved",
        "moved {} to another client",
        "person changed or left a client; sessions ended",
        (Right("accounts.user_move", ("licensing",)),),
    ),
    Act(
        "user:enabled",
        "enabled {}",
        "person may sign in again",
        (Right("accounts.user_enable", ("support",), Proof.GRAVE_FOR_OPERATORS),),
    ),
    Act(
        "user:disabled",
        "disabled {}",
        "person may not sign in; sessions ended",
        (Right("accounts.user_disable", ("support",), Proof.GRAVE_FOR_OPERATORS),),
    ),
    Act(
        "user:operator_set",
        "changed the operator access of {}",
        "person became or ceased to be an operator, or their roles changed",
        (
            Right("accounts.user_dismiss", proof=Proof.GRAVE),
            Right("accounts.user_operator", proof=Proof.GRAVE),
            Right("accounts.user_roles", proof=Proof.GRAVE),
        ),
    ),
    Act(
        "user:password_set",
        "set the password of {}",
        "new password by the person, a link, an operator or a command; sessions ended",
    ),
    Act(
        "user:one_time_password_set",
        "set a one-time password for {}",
        "operator replaced a password with a one-time password; sessions ended",
        (Right("accounts.user_one_time", proof=Proof.GRAVE),),
    ),
    Act(
        "user:password_link_requested",
        "requested a password email to {}",
        "an operator, or anybody who knows the email, requested a reset or invitation",
        (
            Right("accounts.client_invite", ("support", "licensing")),
            Right("accounts.user_invite", ("support", "licensing")),
            Right("accounts.user_reset", ("support",)),
        ),
    ),
    Act(
        "user:tokens_revoked",
        "ended all sessions of {}",
        "all sessions and tokens of a person ended",
        (Right("accounts.user_revoke", ("support",), Proof.GRAVE),),
    ),
    Act(
        "user:deleted",
        "deleted {}",
        "person without usage deleted",
        (Right("accounts.user_remove", proof=Proof.GRAVE),),
    ),
    Act(
        "user:erased",
        "erased {}",
        "person's personal data erased; the event holds only the id",
        (Right("accounts.user_erase", proof=Proof.GRAVE),),
    ),
    Act(
        "everybody:revocation_begun",
        "started ending everybody’s sessions",
        (
            "revocation of all sessions started; without the next event it was interrupted and "
            "some remain"
        ),
    ),
    Act(
        "everybody:tokens_revoked",
        "ended everybody’s sessions",
        "all sessions ended, as after a restore",
        (Right("accounts.session_add", proof=Proof.GRAVE),),
    ),
    Act(
        "client:seat_refused",
        "found no free seat at {}",
        (
            "somebody could not be added, moved or enabled because no seat was free: seats and how many "
            "were taken; at most one in a day for each client"
        ),
    ),
    Act("session:started", "signed in", "sign-in"),
    Act(
        "session:refused",
        "was refused a sign-in as {}",
        (
            "wrong password, a person who may not sign in, or a session to end that is not theirs, at "
            "an account that exists; at most one a minute for each. Wrong emails leave none"
        ),
    ),
    Act(
        "session:device_refused",
        "was refused a sign-in on another device",
        (
            "sign-in with the right password from one more device than the licence allows; at most "
            "one a minute for each person"
        ),
    ),
    Act(
        "session:ended",
        "ended a session of {}",
        "session ended: sign-out, operator or token reuse",
        (Right("accounts.session_end", ("support",)),),
    ),
    Act(
        "session:token_reused",
        "presented a replaced token of {}",
        (
            "replaced refresh token presented: times and addresses of use and reuse, and "
            "concurrent, stale or revoked (after the session's end, at most hourly)"
        ),
    ),
    Act(
        "audit:exported",
        "exported the audit log",
        "audit log exported: its format, filters and search",
        (Right("accounts.auditevent_export", ("auditor",)),),
    ),
    Act(
        "operator:added",
        "added the operator {}",
        "createsuperuser created an operator",
        (Right("accounts.operator_add", proof=Proof.GRAVE),),
    ),
    Act(
        "operator:password_accepted",
        "entered the right password at the console",
        "operator entered the right password; the second factor is still to come",
    ),
    Act(
        "operator:signed_in",
        "signed in to the console",
        "operator signed in to the console; the event names the second factor",
    ),
    Act(
        "operator:factor_proved",
        "confirmed the second factor for a sensitive action",
        "operator confirmed the second factor again, for a sensitive action",
    ),
    Act(
        "operator:factor_refused",
        "entered a wrong second factor",
        "wrong or used code, or passkey refused, at sign-in, set-up or a sensitive action",
    ),
    Act(
        "operator:set_up_code_made",
        "created a set-up code for {}",
        "operator or command created a code to set up a second factor",
        (Right("accounts.user_set_up_code", proof=Proof.GRAVE),),
    ),
    Act("operator:set_up_code_used", "used a set-up code", "operator entered a valid set-up code"),
    Act(
        "operator:set_up_code_refused",
        "entered a wrong set-up code",
        "wrong, used or expired set-up code entered",
    ),
    Act(
        "operator:factor_added",
        "added a second factor",
        "operator added a passkey or an authenticator app; they were emailed",
    ),
    Act(
        "operator:factor_renamed",
        "renamed a second factor",
        "operator renamed a passkey or an authenticator app",
    ),
    Act(
        "operator:factor_removed",
        "removed a second factor",
        "operator removed a passkey or an authenticator app; they were emailed",
    ),
    Act(
        "operator:recovery_codes_made",
        "created recovery codes",
        "operator created recovery codes, which void the earlier ones; they were emailed",
    ),
    Act(
        "operator:factor_reset",
        "reset the second factor of {}",
        (
            "another operator or a command removed all factors; sessions ended, the operator was "
            "emailed"
        ),
        (Right("accounts.user_reset_factor", proof=Proof.GRAVE),),
    ),
    Act(
        "operator:session_ended",
        "ended a console session",
        "operator ended one of their own console sessions",
    ),
    Act("operator:signed_out", "signed out of the console", "operator signed out"),
    Act(
        "operator:sign_in_refused",
        "was refused a sign-in to the console as {}",
        "wrong email or password at the console; target: the email's person, if any",
    ),
    Act("signing_key:made", "created the signing key {}", "signing key created"),
    Act("signing_key:revoked", "revoked the signing key {}", "key and all its tokens voided"),
    Act(
        "signing_key:reencrypted",
        "re-encrypted the signing keys",
        "private key encrypted under a newer encryption key",
    ),
    Act(
        "connection:authorised",
        "connected a provider for {}",
        "person connected or reconnected a third party",
    ),
    Act(
        "connection:reauthorisation_needed",
        "found that a connection of {} needs new consent",
        "provider no longer accepts the grant",
    ),
    Act(
        "connection:removed",
        "removed a connection of {}",
        "connection deleted here, with revocation pending",
        (Right("accounts.connection_disconnect", ("support",)),),
    ),
    Act(
        "connection:revoked",
        "had a connection revoked at its provider",
        "provider confirmed the revocation",
    ),
    Act(
        "connection:revocation_given_up",
        "gave up revoking a connection",
        "no confirmation for two weeks",
    ),
    Act(
        "connection:revocation_retried",
        "tried again to revoke a connection",
        "operator retried a revocation",
        (Right("accounts.connectionrevocation_retry", ("support",)),),
    ),
    Act(
        "connection:revocation_dismissed",
        "forgot a connection that was not revoked",
        "pending revocation dismissed",
        (Right("accounts.connectionrevocation_dismiss", proof=Proof.GRAVE),),
    ),
    Act(
        "client:alert_email_set",
        "set the alert email of {}",
        "address for used-up caps set, changed or removed",
        (Right("accounts.client_alert_email", ("licensing",)),),
    ),
    Act(
        "client:notes_set",
        "changed the notes of {}",
        "contract, account manager or notes changed: which of them, not what they say",
        (Right("accounts.client_notes", ("licensing",)),),
        details=("Changed: {fields}.",),
    ),
    Act(
        "client:exported",
        "exported the list of clients",
        "list of clients exported: its format, filters and search",
        (Right("accounts.client_export", ("licensing", "auditor")),),
    ),
    Act(
        "client:renamed",
        "renamed the client {}",
        "client renamed",
        (Right("accounts.client_name", ("licensing",)),),
    ),
    Act(
        "client:deleted",
        "deleted the client {}",
        "client without people deleted with its licence",
        (Right("accounts.client_remove", ("licensing",), Proof.GRAVE),),
    ),
    Act(
        "client:people_imported",
        "imported people into {}",
        "file of people imported; each has an event too",
        (Right("accounts.client_import", ("licensing",)),),
    ),
    Act(
        "audit:pruned",
        "deleted old events of the audit log",
        "old events deleted, and how many",
    ),
)

declare(ACTS, PAGES)
