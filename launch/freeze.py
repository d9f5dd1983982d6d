"""From a composed config to a run folder that holds it frozen: everything a user can get wrong is found before it."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from omegaconf import DictConfig, open_dict

from scalescope.launch.compose import freeze, refuse_strangers, typed
from scalescope.launch.devices import Place, resolve
from scalescope.launch.verb import Verb
from scalescope.launch.world import World
from scalescope.records.folder import RunFolder, new_name


@dataclass(frozen=True)
class Plan:
    """A job that is ready to start: checked, placed, and not yet on disk."""

    verb: Verb
    text: str  # the frozen config
    path: Path  # where its run folder will be
    study: str | None
    place: Place
    resume: bool  # go on with the folder where it exists

    def make_folder(self) -> RunFolder:
        """Make the run folder, or open it to go on with. Raises UserError where it cannot be made or does not fit."""
        if self.resume and os.path.exists(self.path):  # noqa: PTH110 - pathlib's raises where a parent is closed
            return RunFolder.resume(self.path, self.text)
        return RunFolder.create(self.path, self.verb.kind, self.text, self.study)


def plan_job(verb: Verb, config: DictConfig, world: World | None = None) -> Plan:
    """Check and place a composed config. Raises UserError; nothing is written.

    What `auto` came to is written into the config, so that the frozen text says what ran.
    """
    refuse_strangers(config, verb)
    checked = typed(config, verb.schema)
    place = resolve(checked.launch, world.size if world else None, world.local_size if world else None)
    checked.launch.device = place.device  # what a check may refuse can depend on it
    verb.load_check()(checked, place.ranks)
    name = checked.name or new_name(verb.name, checked.what)
    with open_dict(config):
        config.name = name
        config.launch.ranks = place.ranks
        config.launch.device = place.device
        config.launch.backend = place.backend
        config.launch.threads_per_rank = place.threads_per_rank
    path = Path(cast(str, config.runs)).expanduser().resolve() / name
    return Plan(verb, freeze(config), path, checked.study, place, checked.resume)
