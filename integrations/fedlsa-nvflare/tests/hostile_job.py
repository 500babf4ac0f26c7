"""A controller for a FLARE server that has been taken over: it sends a site what no coordinator would."""

import json
import os

from nvflare.apis.controller_spec import Task
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable

ATTACKS = {
    "another task": ("train", {"weights": [1.0]}),
    "another task with an order": ("validate", {"fedlsa": b"order"}),
    "our task with other content": ("fedlsa", {"fedlsa": {"code": "1"}}),
    "our task without content": ("fedlsa", {}),
    "a forged order": ("fedlsa", {"fedlsa": b"\x00" * 64 + b'{"kind": "describe"}'}),
    "a large order": ("fedlsa", {"fedlsa": bytes(17 * 2**20)}),
}


class HostileController(Controller):
    """Writes what came back for each attack into the file that the environment names."""

    def start_controller(self, fl_ctx):
        pass

    def stop_controller(self, fl_ctx):
        pass

    def process_result_of_unknown_task(self, *_, **__):
        pass

    def control_flow(self, abort_signal, fl_ctx):
        seen = {}
        if "site-1" not in [client.name for client in fl_ctx.get_engine().get_clients()]:
            self.broadcast_and_wait(Task("train", Shareable({}), timeout=30), fl_ctx, abort_signal=abort_signal)
            return
        for attack, (name, content) in ATTACKS.items():

            def note(client_task, fl_ctx, attack=attack):
                result = client_task.result
                seen[attack] = [str(result.get_return_code()), sorted(set(result) - {"__headers__"})]

            task = Task(name, Shareable(content), timeout=60, result_received_cb=note)
            self.send_and_wait(task, fl_ctx, targets=["site-1"], abort_signal=abort_signal)
        with open(os.environ["HOSTILE_OUT"], "w") as file:
            json.dump(seen, file)
