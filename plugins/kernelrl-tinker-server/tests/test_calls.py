"""Every call of the SDK is served or refused, as the README lists."""

from __future__ import annotations

import pytest
import sdk_calls
import tinker


@pytest.mark.filterwarnings("ignore")  # the SDK warns of deprecated methods
def test_the_readme_lists_the_reaction_to_every_call(server) -> None:
    written = sdk_calls.README.read_text(encoding="utf-8").split(sdk_calls.BEGIN)[1].split(sdk_calls.END)[0]
    assert written == sdk_calls.table(server), "run python plugins/kernelrl-tinker-server/tests/sdk_calls.py"
    assert {line.split("|")[1].strip() for line in written.splitlines()[2:]} <= {"served", "refused", "not known"}


def test_a_call_that_is_not_served_is_refused_by_name(server, service) -> None:
    training = service.create_lora_training_client(base_model="tiny").result()
    with pytest.raises(tinker.BadRequestError, match="does not serve POST /api/v1/save_weights_external"):
        training.save_weights_external("external").result()


def test_sessions_are_listed_with_their_runs(server, service) -> None:
    run = service.create_lora_training_client(base_model="tiny").result().get_info().model_id
    rest = tinker.RestClient(base_url=server.base_url, api_key=server.api_key)
    session = run.partition(":")[0]
    assert session in rest.list_sessions(limit=1000).result().sessions
    assert rest.get_session(session).result().training_run_ids == [run]
    with pytest.raises(tinker.NotFoundError, match="there is no session 'nosuch'"):
        rest.get_session("nosuch").result()


def test_a_sampling_client_finds_the_tokenizer_without_the_hub(server, service) -> None:
    """With `base_model="tiny"` the SDK itself searches the hub; with saved weights, or the server's first name, not."""
    training = service.create_lora_training_client(base_model="tiny").result()
    path = training.save_weights_for_sampler("tokenizer").result().path
    for which in ({"model_path": path}, {"base_model": server.models[0]}):
        tokenizer = service.create_sampling_client(**which).result().get_tokenizer()
        assert tokenizer.decode(tokenizer.encode("x = 1\n")) == "x = 1\n"


def test_parts_of_a_checkpoint_are_known_to_the_next_client(server, service) -> None:
    training = service.create_lora_training_client(base_model="tiny", train_mlp=False).result()
    path = training.save_state("frozen").result().path
    rest = tinker.RestClient(base_url=server.base_url, api_key=server.api_key)
    info = rest.get_weights_info_by_tinker_path(path).result()
    assert (info.train_mlp, info.train_attn, info.train_unembed) == (False, True, True)
