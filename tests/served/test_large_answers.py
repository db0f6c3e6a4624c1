"""Twenty large embeddings of one person at once: all are answered and paid, within the memory of a small process."""

import json
import subprocess
import sys

import pytest

from llmproxy.models import LanguageModel
from tests.bench.large_answers import INPUTS, MODEL, ask_at_once, provider
from tests.served.conftest import Ground
from tests.served.service import running_service
from tests.tools.folders import ROOT
from usage.models import UsageRecord

pytestmark = pytest.mark.full

NUMBER = 20
MOST_MIB = 700


def test_large_embeddings_at_once_are_answered_within_bounds(ground: Ground) -> None:
    with ground.database.rows():
        LanguageModel.objects.create(name=MODEL, provider_name=MODEL)
    with (
        provider() as address,
        running_service(ground.folder, {**ground.environ, "LLM_BASE_URL": address}) as service,
    ):
        done = subprocess.run(
            [sys.executable, "-m", "tests.served.signing", "2"],
            cwd=ROOT,
            env=dict(service.environ),
            capture_output=True,
            text=True,
            check=True,
        )
        token, other = json.loads(done.stdout)
        seen = ask_at_once(
            port=service.port, workers=service.workers(), token=token, other=other, number=NUMBER
        )
        assert service.errors() == []
    assert seen.codes == {200: NUMBER}
    assert len(seen.sizes) == 1
    assert seen.most_mib < MOST_MIB
    with ground.database.rows():
        records = UsageRecord.objects.filter(model=MODEL)
        assert set(records.values_list("end", "input_tokens")) == {("done", INPUTS)}
        assert records.count() == NUMBER
