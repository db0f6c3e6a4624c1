from config.platform import declarations


class LicensingConfig(declarations.DeclaringApp):
    name = "licensing"
    declaring = ("attention",)
