from config.platform import declarations


class UsageConfig(declarations.DeclaringApp):
    name = "usage"
    declaring = ("acts", "admin.finders", "attention")
