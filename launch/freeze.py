"""From a composed config to a run folder that holds it frozen: everything a user can get wrong is found before it."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from omegaconf import DictConfig, open_dict

from scalescope.launch.bounds import as_written
from scalescope.launch.claim import claim
from scalescope.launch.compose import freeze, refuse_strangers, thaw, typed
from scalescope.launch.devices import DeviceChoice, resolve
from scalescope.launch.keys import changed_keys
from scalescope.launch.verb import Verb
from scalescope.launch.world import World
from scalescope.records.errors import UserError
from scalescope.records.folder import RunFolder, new_name
from scalescope.records.frozen import read_frozen_text


@dataclass(frozen=True)
class Plan:
    """A job that is ready to start: checked, placed, and not yet on disk."""

    verb: Verb
    text: str  # the frozen config
    path: Path  # where its run folder will be
    study: str | None
    devices: DeviceChoice
    resume: bool  # go on with the folder where it exists

    def make_folder(self) -> RunFolder:
        """Make the run folder, or open it to go on with. Raises UserError where that cannot be, or is another job's."""
        if self.resume and os.path.exists(self.path):  # noqa: PTH110 - pathlib's raises where a parent is closed
            folder = RunFolder.open(self.path)
            claim(self.path)
            self.refuse_another_config(folder)
            folder.reopen()
            return folder
        folder = RunFolder.create(self.path, self.verb.kind, self.text, self.study)
        claim(self.path)
        return folder

    def refuse_another_config(self, folder: RunFolder) -> None:
        """Raise UserError where a folder was made with settings that measure something else."""
        if (kind := folder.read_info().kind) != self.verb.kind:
            raise UserError(f"{folder.path} is a {kind} run, and cannot be gone on with as a {self.verb.kind}; choose "
                            "another name")  # fmt: skip
        text = read_frozen_text(folder.config)
        then, now = (thaw(each, self.verb.schema, self.verb.variants) for each in (text, self.text))
        changed = [f"{key}: {as_written(value)} (was {as_written(before)})"
                   for key, before, value in changed_keys(then, now) if key not in now.loosened]  # fmt: skip
        if changed:
            raise UserError(f"{folder.path} was made with another config, and cannot be gone on with: "
                            f"{'; '.join(changed[:4])}; leave these as they were, or choose another name")  # fmt: skip


def folder_below(runs: str, name: str) -> Path:
    """Return where the run folder `name` lies. Raises UserError where that is not inside of `runs`."""
    root = Path(runs).expanduser().resolve()
    path = Path(os.path.normpath(root / name))
    if root not in path.parents:
        raise UserError(f"name={name!r} lies outside of {root}; give a name without .. and a leading /, "
                        "and set runs= to the folder that shall hold it")  # fmt: skip
    return root / name


def plan_job(verb: Verb, config: DictConfig, world: World | None = None) -> Plan:
    """Check and place a composed config. Raises UserError; nothing is written.

    What `auto` came to is written into the config, so that the frozen text says what ran.
    """
    refuse_strangers(config, verb)
    checked = typed(config, verb.schema)
    devices = resolve(checked.launch, world.size if world else None, world.local_size if world else None)
    checked.launch.device = devices.device  # what a check may refuse can depend on it
    verb.load_check()(checked, devices.ranks)
    launches = config.get("launches", 1)
    if world is not None and launches > 1:
        raise UserError(f"launches={launches} starts ranks anew each time, and these are started by "
                        f"{world.source} already; call scalescope {verb.name} outside of it")  # fmt: skip
    name = checked.name or new_name(verb.name, checked.what)
    with open_dict(config):
        config.name = name
        config.launch.ranks = devices.ranks
        config.launch.device = devices.device
        config.launch.backend = devices.backend
        config.launch.threads_per_rank = devices.threads_per_rank
    path = folder_below(cast(str, config.runs), name)
    return Plan(verb, freeze(config), path, checked.study, devices, checked.resume)
