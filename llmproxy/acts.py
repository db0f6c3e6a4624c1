"""Acts on models, providers, routes and personal keys, and the pages of their rows."""

from config.platform.acts import Act, Page, Proof, Right, declare

PAGES = (
    Page("llmproxy.languagemodel", ("support", "licensing")),
    Page("llmproxy.personalkey", ("support", "licensing")),
    Page("llmproxy.provider", ("licensing",)),
    Page("llmproxy.route", ("licensing",)),
)

ACTS = (
    Act(
        "personal_key:made",
        "created a personal key for {}",
        "person created a personal key: its id, end and cap",
    ),
    Act(
        "personal_key:ended",
        "revoked a personal key of {}",
        "person or operator revoked it",
        (Right("llmproxy.personalkey_end", ("support",)),),
    ),
    Act(
        "language_model:added",
        "added the model {}",
        "model added",
        (Right("llmproxy.languagemodel_add", ("licensing",)),),
    ),
    Act(
        "language_model:changed",
        "changed the model {}",
        "model changed",
        (
            Right("llmproxy.languagemodel_off", ("licensing",)),
            Right("llmproxy.languagemodel_offer", ("licensing",)),
            Right("llmproxy.languagemodel_on", ("licensing",)),
        ),
    ),
    Act(
        "provider:added",
        "added the provider {}",
        "provider of models added",
        (
            # A provider's address receives everybody's prompts.
            Right("llmproxy.provider_add", proof=Proof.GRAVE),
        ),
    ),
    Act(
        "provider:changed",
        "changed the provider {}",
        "provider changed; its key is never written",
        (Right("llmproxy.provider_terms", proof=Proof.GRAVE),),
    ),
    Act(
        "provider:switched_off",
        "switched off the provider {}",
        "calls no longer go to a provider",
        (Right("llmproxy.provider_off", ("licensing",)),),
    ),
    Act(
        "provider:switched_on",
        "switched on the provider {}",
        "calls go to a provider again",
        (Right("llmproxy.provider_on", ("licensing",)),),
    ),
    Act(
        "route:added",
        "added the route {}",
        "model given a route to a provider",
        (Right("llmproxy.route_add", ("licensing",)),),
    ),
    Act(
        "route:changed",
        "changed the route {}",
        "route changed",
        (Right("llmproxy.route_way", ("licensing",)),),
    ),
    Act(
        "route:removed",
        "removed the route {}",
        "route removed",
        (Right("llmproxy.route_remove", ("licensing",)),),
    ),
    Act(
        "route:tried",
        "tried the route {}",
        "operator tried a route",
        (Right("llmproxy.route_try", ("licensing",)),),
    ),
    Act(
        "route:factor_learned",
        "learned the token factor of {}",
        "token factor of a route learned from providers' reports",
    ),
    Act(
        "route:factor_set",
        "set the token factor of {}",
        "operator set a route's token factor",
        (Right("llmproxy.route_factor", ("licensing",)),),
    ),
    Act(
        "route:factor_freed",
        "returned the token factor of {} to automatic learning",
        "a route's token factor learned automatically again",
        (Right("llmproxy.route_learn", ("licensing",)),),
    ),
    Act(
        "route:prices_updated",
        "updated the prices of {}",
        "update_prices wrote a route's published prices",
    ),
    Act(
        "route:prices_set",
        "set the prices of {}",
        "operator set a route's prices",
        (Right("llmproxy.route_prices", ("licensing",)),),
    ),
    Act(
        "route:prices_freed",
        "returned {} to its published prices",
        "operator left a route's prices to update_prices again",
        (Right("llmproxy.route_published_prices", ("licensing",)),),
    ),
)

declare(ACTS, PAGES)
