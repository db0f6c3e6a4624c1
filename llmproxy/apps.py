from config.platform import declarations


class ModelProxyConfig(declarations.DeclaringApp):
    name = "llmproxy"
    verbose_name = "model proxy"
    declaring = ("acts", "admin.finders", "attention")
