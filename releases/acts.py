"""Acts on the shell's releases and micro apps, and the pages of their rows."""

from config.platform.acts import Act, Page, Proof, Right, declare

PAGES = (
    Page("releases.appchannel", ("release",)),
    Page("releases.apppin", ("support", "release")),
    Page("releases.appversion", ("release",)),
    Page("releases.microapp", ("support", "release")),
    Page("releases.shellchannel", ("support", "release")),
    Page("releases.shellrelease", ("support", "release")),
)

ACTS = (
    Act("release:published", "published {}", "manifest published"),
    Act("release:repeated", "published {} again", "same bytes published again"),
    Act(
        "release:refused",
        "was refused a publish",
        (
            "publish or dry run (dry_run) refused, or a pipeline its issuer vouches for but "
            "that may not publish; with fault codes"
        ),
    ),
    Act(
        "release:credential_refused",
        "presented a credential that may not publish",
        "invalid secret or token used to publish; at most hourly per address, 60 an hour in all",
    ),
    Act("release:failed", "failed to publish {}", "publish failed on our side"),
    Act(
        "release:rolled_back",
        "rolled back {}",
        "channel offers an earlier release again",
        (Right("releases.shellchannel_roll_back", ("release",), Proof.GRAVE),),
    ),
    Act(
        "release:halted",
        "halted {}",
        "channel offers nothing until resumed",
        (Right("releases.shellchannel_halt", ("release",)),),
    ),
    Act(
        "release:resumed",
        "resumed {}",
        "channel offers its release again",
        (Right("releases.shellchannel_resume", ("release",), Proof.GRAVE),),
    ),
    Act(
        "release:share_raised",
        "raised the share of a release of {}",
        "release of a share of the shells is offered to more of them; 100: to all",
        (
            Right("releases.shellchannel_offer", ("release",), Proof.GRAVE),
            Right("releases.shellchannel_raise_share", ("release",), Proof.GRAVE),
        ),
    ),
    Act(
        "release:share_ended",
        "ended the share of a release of {}",
        "release taken back from its share of the shells",
        (Right("releases.shellchannel_end_share", ("release",)),),
    ),
    Act(
        "release:purge_failed",
        "could not purge {} at the CDN",
        "CDN does not serve a channel's release; once, with the email to operators",
    ),
    Act(
        "release:purge_retried",
        "purged {} at the CDN again",
        "operator retried a purge at once",
        (Right("releases.shellchannel_purge", ("release",)),),
    ),
    Act("app:published", "published {}", "version of a micro app stored"),
    Act(
        "app:channel_moved",
        "moved a channel of {}",
        "app's channel offers another version",
        (
            Right("releases.microapp_move", ("release",), Proof.GRAVE),
            Right("releases.microapp_promote", ("release",), Proof.GRAVE),
        ),
    ),
    Act(
        "app:pinned",
        "pinned {}",
        "client or plan pinned to a version",
        (
            Right("releases.microapp_pin_client", ("release",), Proof.GRAVE),
            Right("releases.microapp_pin_plan", ("release",), Proof.GRAVE),
        ),
    ),
    Act(
        "app:unpinned",
        "removed the pin of {}",
        "pin removed",
        (Right("releases.apppin_unpin", ("release",), Proof.GRAVE),),
    ),
    Act(
        "app:withdrawn",
        "withdrew {}",
        "version is no longer offered",
        (Right("releases.appversion_withdraw", ("release",), Proof.GRAVE),),
    ),
)

declare(ACTS, PAGES)
