"""A table of a spec: unknown keys are refused, and nothing changes once it is read."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Finite = Annotated[float, Field(allow_inf_nan=False)]


class Section(BaseModel):
    """Base of every table."""

    model_config = ConfigDict(extra="forbid", frozen=True)
