from config.platform import declarations


class AccountsConfig(declarations.DeclaringApp):
    name = "accounts"
    declaring = ("admin.finders", "attention")
