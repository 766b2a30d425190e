"""Contract and learning of the policy `bandit`."""

import asyncio
import math

from kernelrl_core.api.policies import Loss, LossSample, OptimizerSettings, TrainingSample, Update
from kernelrl_plugin_bandit.options import BanditConfig
from kernelrl_plugin_bandit.policy import Bandit
from kernelrl_testing.contracts import PolicyContract


class TestContract(PolicyContract):
    component = "bandit"


def test_an_update_follows_the_gradient() -> None:
    policy = Bandit(BanditConfig())
    sample = LossSample("0.0.0.0", (), (1,), (math.log(0.5),), (1.0,))
    optimizer = OptimizerSettings(0.1, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.0, max_grad_norm=None)
    asyncio.run(policy.update(Update(0, ((sample,),), (), Loss("importance_sampling", 0.2, 0.2), optimizer)))
    ((found,),) = asyncio.run(policy.logprobs([TrainingSample("0.0.0.0", (), (1,), (), 0.0)], "current"))
    assert math.isclose(found, math.log(math.exp(0.05) / (math.exp(0.05) + math.exp(-0.05))))
