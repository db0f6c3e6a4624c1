from config.platform import declarations


class AccountsConfig(declarations.DeclaringApp):
    name = "accounts"
    declaring = (
        "acts",
        "admin.finders",
        "attention",
        "people.client_names",
        "people.email_forms",
    )
