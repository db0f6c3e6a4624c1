"""The dialects of providers, by their names in settings and rows. Another one is declared beside its codecs and listed
here.

Settings and models import it, so no codec may read either while it is imported.
"""

from llmproxy.dialects.anthropic.dialect import ANTHROPIC
from llmproxy.dialects.openai.dialect import OPENAI

DIALECTS = {each.name: each for each in (OPENAI, ANTHROPIC)}
