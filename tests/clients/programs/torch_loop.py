"""A training loop of PyTorch that saves the loader with the model, stops and resumes."""

import io
import json
from typing import Any

import grain
import numpy as np
import torch

POINTS = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)


class Trainer:
    """A model, its optimizer and its data, with one `state_dict` for all of them."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Linear(3, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        dataset = grain.MapDataset.source(list(POINTS)).shuffle(seed=1).repeat(2).batch(8)
        self.data: Any = iter(dataset.to_iter_dataset())

    def state_dict(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "data": self.data.get_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.data.set_state(state["data"])

    def step(self) -> float:
        points = torch.from_numpy(next(self.data))
        loss = ((self.model(points) - points.sum(1, keepdim=True)) ** 2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())


if __name__ == "__main__":
    trainer = Trainer()
    losses = [trainer.step() for _ in range(4)]
    file = io.BytesIO()
    torch.save(trainer.state_dict(), file)
    rest = [trainer.step() for _ in range(6)]
    resumed = Trainer()
    resumed.load_state_dict(torch.load(io.BytesIO(file.getvalue()), weights_only=False))
    again = [resumed.step() for _ in range(6)]
    print(json.dumps({"losses": losses + rest, "resumes": again == rest}))
