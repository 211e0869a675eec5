"""Which method the arguments of `fenchel.adapt` name, and the settings that come with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fenchel.adapters.method import METHODS, Method
from fenchel.losses import Loss
from fenchel.methods.calibrated import Calibration
from fenchel.methods.descent import Descent
from fenchel.methods.making import made_method
from fenchel.names import parse_spec
from fenchel.objectives import Objective

_OTHER_NAMES = {
    "lr": "learning_rate",
    "loss": "trained_with",
    "T": "temperature",
    "rate": "learning_rate",
}
"""Names that other libraries use for an argument of `adapt`, and the name of that argument."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A method before the training loss is known: ready, or a kind with options."""

    ready: Method | None = None
    kind: type[Method] | type[Objective] | None = None
    name: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    preferred: Mapping[str, Any] = field(default_factory=dict)
    """Settings of `adapt` that the method was made for, or that its authors published."""

    @staticmethod
    def of(method: object, objective: object, settings: object, options: dict[str, Any]) -> Choice:
        """What `method=`, `objective=`, `settings=` and the other keywords of `adapt` name."""
        _require_no_other_name(options)
        if isinstance(method, Method):
            return _ready_method(method, objective, settings, options)
        if method is None and objective is not None:
            _require_alone(objective, settings, options)
            return Choice(ready=Descent(objective=objective))  # type: ignore[arg-type]
        kind, name, written = _named(method)
        if objective is not None:
            if "objective" not in kind.options():
                raise ValueError(
                    f"pass method= or objective=, not both; got method={method!r} as well."
                )
            options = {**options, "objective": objective}
        if twice := sorted(written.keys() & options.keys()):
            raise TypeError(f"{', '.join(twice)} is given twice, in method= and as a keyword.")
        known = kind.options()
        found = {**kind.defaults, **settings_of(kind, name, settings)}
        theirs = {option: value for option, value in found.items() if option in known}
        if isinstance(settings, Calibration) and settings.fisher is not None and "fisher" in known:
            theirs["fisher"] = settings.fisher
        return Choice(
            kind=kind,
            name=name,
            options={**theirs, **written, **options},
            preferred={setting: value for setting, value in found.items() if setting not in known},
        )

    def made(
        self,
        loss: Loss | None,
        temperature: float | None,
        input_range: tuple[float, float] | None,
    ) -> Method:
        """The method for a model trained with `loss`; see `made_method`."""
        if temperature is None:
            temperature = self.preferred.get("temperature")
        if self.ready is None:
            return made_method(
                self.kind or self.name,
                loss,
                self.options,
                title=self.name,
                temperature=temperature,
                input_range=input_range,
            )
        if temperature is None:
            return self.ready.trained_with(loss)
        if not isinstance(self.ready, Descent):
            raise _brings_its_own(self.ready, ["temperature"])
        cooled = dataclasses.replace(self.ready.objective, temperature=temperature)
        return dataclasses.replace(self.ready, objective=cooled)


def settings_of(
    kind: type[Method] | type[Objective], name: str, settings: object
) -> dict[str, Any]:
    """What was found for the model, or what the method's authors published for a data set."""
    calibration = calibration_in(settings)
    if calibration is not None:
        return calibration.settings_for(name)
    if settings is not None and not isinstance(settings, str):
        raise TypeError(
            "settings is a calibration, its file, or the name of a data set; got "
            f"{type(settings).__name__}."
        )
    return kind.published_for(settings, title=name)


def calibration_in(settings: object) -> Calibration | None:
    """What `settings=` names, if it is a calibration or the file of one."""
    if isinstance(settings, Calibration):
        return settings
    is_file = isinstance(settings, Path) or str(settings).endswith(".safetensors")
    return Calibration.load(settings) if is_file else None  # type: ignore[arg-type]


def _named(method: object) -> tuple[type[Method] | type[Objective], str, dict[str, Any]]:
    """The kind of method that a name or a class stands for, and the options written behind a name."""
    if isinstance(method, type) and issubclass(method, Method):
        return method, method.__name__, {}
    spec = "conjugate" if method is None else method
    if not isinstance(spec, str):
        hint = " Pass it as objective=." if isinstance(spec, Objective) else ""
        raise TypeError(
            "method is a name such as 'conjugate', or a fenchel.Method; got "
            f"{type(spec).__name__}.{hint}"
        )
    name, written = parse_spec(spec)
    return METHODS[name], name, written


def _ready_method(
    method: Method, objective: object, settings: object, options: Mapping[str, Any]
) -> Choice:
    given = [*options]
    given += ["objective"] if objective is not None else []
    given += ["settings"] if settings is not None else []
    if given:
        raise _brings_its_own(method, given)
    return Choice(ready=method, preferred=method.defaults)


def _brings_its_own(method: Method, given: list[str]) -> TypeError:
    return TypeError(
        f"{type(method).__name__} brings its own options; got {', '.join(given)} as well. Set them on the "
        "method itself."
    )


def _require_no_other_name(options: Mapping[str, Any]) -> None:
    """Refuse an argument named as in another library, and give the name that it has here."""
    for name, ours in _OTHER_NAMES.items():
        if name in options:
            raise TypeError(f"adapt does not know {name}=. Did you mean {ours}=?")


def _require_alone(objective: object, settings: object, options: Mapping[str, Any]) -> None:
    """Refuse what cannot go with an objective that is followed by itself."""
    if not isinstance(objective, Objective):
        hint = f" Pass a name as method={objective!r}." if isinstance(objective, str) else ""
        raise TypeError(
            f"objective must be a fenchel Objective; got {type(objective).__name__}.{hint} Derive one from "
            "your training loss with Conjugate(fenchel.derive(loss)), or subclass fenchel.Objective."
        )
    if options:
        raise TypeError(
            f"adapt does not know {', '.join(options)}; set it on the objective itself."
        )
    if settings is not None:
        raise TypeError(
            f"settings are those of a method; got settings={settings!r} with an objective of your own. Leave "
            "them out."
        )
