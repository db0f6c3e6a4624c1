"""The dialects of providers, by their names in settings and rows (``names``).

Another one is declared beside its codecs and listed here.
"""

from llmproxy.dialects.anthropic.dialect import ANTHROPIC
from llmproxy.dialects.openai.dialect import OPENAI

DIALECTS = {each.name: each for each in (OPENAI, ANTHROPIC)}
