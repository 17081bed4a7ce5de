"""Every error Stepwell raises: one class each, with a stable code; the docstring is the meaning."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any


class StepwellError(Exception):
    """Something Stepwell refuses or cannot do."""

    code = "stepwell_error"
    # The entry behind it, when a program got this error out of its journal: position, seq, key.
    journaled: tuple[int, int, str] | None = None

    def __init__(self, message: str, **details: Any) -> None:
        # Not super(): a failed step's error is also of the class that the step raised, and that
        # class may want other arguments.
        Exception.__init__(self, message)
        self.message = message
        self.details = details

    def __str__(self) -> str:
        return self.message

    @property
    def shown_details(self) -> dict[str, Any]:
        """Its details for whoever meets it, without what is for the engine alone."""
        return {name: each for name, each in self.details.items() if name not in _INTERNAL}


# `masked` is the message as it may be written down.
_INTERNAL = frozenset({"masked"})


class InvalidInput(StepwellError):
    """A value given by the caller does not have the form that is asked for."""

    code = "invalid_input"


class InvalidName(InvalidInput):
    """A name is empty, too long, or has characters that names cannot have."""

    code = "invalid_name"


class InvalidDuration(InvalidInput):
    """A duration could not be read."""

    code = "invalid_duration"


class NotSerialisable(InvalidInput):
    """A value given to Stepwell cannot be written as JSON."""

    code = "not_serialisable"


class InputTooLarge(InvalidInput):
    """An input, or a signal's or event's payload, is larger than the store accepts."""

    code = "input_too_large"


class InputInvalid(InvalidInput):
    """A run's input does not fit its definition's schema; `details["problems"]` has up to 20."""

    code = "input_invalid"


class InvalidPath(InvalidInput):
    """A JSONPath, or a map with such paths, could not be read; `details` has where and a hint."""

    code = "invalid_path"


class PathTooBroad(InvalidInput):
    """A JSONPath finds more than may be taken, or has to look at too much for it."""

    code = "path_too_broad"


class ScheduleInvalid(InvalidInput):
    """A schedule cannot be understood, or would never fire; `details["problems"]` has all."""

    code = "schedule_invalid"


class SecretKeyInvalid(InvalidInput):
    """The key that seals secrets is missing, malformed, or not the one they were sealed with."""

    code = "secret_key_invalid"


class ResultNotSerialisable(StepwellError):
    """What a step or a run returned cannot be written as JSON."""

    code = "result_not_serialisable"


class ResultTooLarge(StepwellError):
    """What a step or a run returned is larger than the store accepts."""

    code = "result_too_large"


class UnknownDefinition(StepwellError):
    """No definition of that name was ever registered or published in this store."""

    code = "unknown_definition"


class RevisionNotFound(StepwellError):
    """There is no document with that hash, or the definition never had it."""

    code = "revision_not_found"


class DefinitionExists(StepwellError):
    """There is a definition of that name already."""

    code = "definition_exists"


class DraftNotFound(StepwellError):
    """The definition has no draft."""

    code = "draft_not_found"


class AlreadyCurrent(StepwellError):
    """The revision that is asked for is the current one."""

    code = "already_current"


class Conflict(StepwellError):
    """What is to be changed has been changed meanwhile; `details["changes"]` says how."""

    code = "conflict"


class ProposalNotFound(StepwellError):
    """There is no proposal with that id."""

    code = "proposal_not_found"


class ProposalsForbidden(StepwellError):
    """The definition's policy does not allow this proposal, or this review of it."""

    code = "proposals_forbidden"


class ProposalNotOpen(StepwellError):
    """The proposal is in a state in which that cannot be done with it."""

    code = "proposal_not_open"


class DefinitionDisabled(StepwellError):
    """The definition is disabled: nothing starts runs of it."""

    code = "definition_disabled"


class DuplicateDefinition(StepwellError):
    """Two different functions were registered under one name and version."""

    code = "duplicate_definition"


class RunNotFound(StepwellError):
    """There is no run with that id."""

    code = "run_not_found"


class StepNotFound(StepwellError):
    """The run has no step with that key."""

    code = "step_not_found"


class RunNotFailed(StepwellError):
    """Only a run that failed, was cancelled or timed out can be retried."""

    code = "run_not_failed"


class InvalidCursor(InvalidInput):
    """A cursor, or the id of an event, is not of the list or the run that is to go on from it."""

    code = "invalid_cursor"


class StoreForbidden(StepwellError):
    """The store is there, but this role may not use it."""

    code = "store_forbidden"


class StoreUrlInvalid(StepwellError):
    """The store's URL cannot be understood."""

    code = "store_url_invalid"


class StoreUnavailable(StepwellError):
    """The store cannot be reached at the moment."""

    code = "store_unavailable"


class ServerUnavailable(StepwellError):
    """A server cannot be reached at the moment, or what answers is none of Stepwell's."""

    code = "server_unavailable"


class ProviderUnavailable(StepwellError):
    """The provider that people log in at does not answer at the moment, or not as it should."""

    code = "provider_unavailable"


class Overtaken(StepwellError):
    """A record was changed by somebody else meanwhile."""

    code = "overtaken"


class ChangeRefused(StepwellError):
    """The store cannot hold what it was given, and never will."""

    code = "change_refused"


class ChangeBlocked(StepwellError):
    """A transaction of somebody else's holds what a change needs; the change is tried again."""

    code = "change_blocked"

    def __init__(self, message: str, run_ids: Collection[str] = ()) -> None:
        super().__init__(message)
        # The runs that somebody holds, if the store could tell.
        self.run_ids = run_ids


class NotOpen(StepwellError):
    """A Stepwell is used before it was opened, or after it was closed."""

    code = "not_open"


class SchemaTooNew(StepwellError):
    """The store was migrated by a newer Stepwell than this one."""

    code = "schema_too_new"


class SchemaTooOld(StepwellError):
    """The store needs a migration before this Stepwell can use it."""

    code = "schema_too_old"


class ForkRefused(StepwellError):
    """The store cannot be copied to that place."""

    code = "fork_refused"


class SignalNotDelivered(StepwellError):
    """The run had ended before the signal came."""

    code = "signal_not_delivered"


class NonRetryable(Exception):
    """Raise this in a step function to fail the step at once, whatever its retry policy says."""


class ContextMisuse(StepwellError, NonRetryable):
    """The context was used where it cannot be: inside a step function, or after its run ended."""

    code = "context_misuse"


class JournalMismatch(StepwellError):
    """The journal holds another kind of entry under this name: the code of its run changed."""

    code = "journal_mismatch"


class OutcomeUnknown(StepwellError):
    """A step marked `once` was interrupted: whether it took effect is not known."""

    code = "outcome_unknown"


class InvalidDefinition(StepwellError):
    """A definition has problems; `details["problems"]` lists all of them."""

    code = "invalid_definition"


class MissingPath(StepwellError):
    """A reference leads to something that is not there."""

    code = "missing_path"


class TextTooLong(StepwellError):
    """A text became too long by what was put into it."""

    code = "text_too_long"


class ConditionFailed(StepwellError):
    """Whether a condition holds could not be found out."""

    code = "condition_failed"


class ItemsInvalid(StepwellError):
    """What a node is to be executed for is not a list, or too long a list."""

    code = "items_invalid"


class LoopExhausted(StepwellError):
    """A loop was repeated as often as it may be, and its condition does not hold."""

    code = "loop_exhausted"


class RecursionTooDeep(StepwellError):
    """Runs of graphs have started each other without end."""

    code = "recursion_too_deep"


class StepBudgetExceeded(StepwellError):
    """The run has executed as many nodes as its policy allows."""

    code = "step_budget_exceeded"


class ConfigInvalid(StepwellError, NonRetryable):
    """What references made of a node's config does not fit its type."""

    code = "config_invalid"


class CommandFailed(StepwellError):
    """A command or script ended with an exit code other than 0."""

    code = "command_failed"


class SandboxUnavailable(StepwellError, NonRetryable):
    """This machine has nothing to isolate scripts with."""

    code = "sandbox_unavailable"


class CodeFailed(StepwellError):
    """The code of a node raised an error, or used more time or memory than it may."""

    code = "code_failed"


class RequestFailed(StepwellError):
    """A request got no answer, or one that says to try again; `details` has what came."""

    code = "request_failed"

    def __init__(
        self, message: str, *, retry_after_seconds: float | None = None, **details: Any
    ) -> None:
        super().__init__(message, **details)
        # How long the other side asks to wait before the next attempt.
        self.retry_after_seconds = retry_after_seconds


class RequestRefused(RequestFailed, NonRetryable):
    """The other side refused a request for good."""

    code = "request_refused"


class AddressRefused(StepwellError, NonRetryable):
    """A request would go to an address it must not reach."""

    code = "address_refused"


class SecretNotFound(StepwellError):
    """There is no secret of that name."""

    code = "secret_not_found"


class SignatureInvalid(StepwellError):
    """A request is not proven to come from whom it should; `details["reason"]` says why not."""

    code = "signature_invalid"


class BodyInvalid(InvalidInput):
    """A request's body, query or headers do not have the form they are said to have."""

    code = "body_invalid"


class BodyTooLarge(InvalidInput):
    """A request's body is larger than is accepted, as it came or once it was unpacked."""

    code = "body_too_large"


class BodyUnsupported(InvalidInput):
    """A request's body is of a kind that is not accepted, or packed in such a way."""

    code = "body_unsupported"


class EventInvalid(InvalidInput):
    """What came as a CloudEvent is none: an attribute is missing or malformed."""

    code = "event_invalid"


class GateNotFound(StepwellError):
    """There is no gate with that id, or the run waits at none."""

    code = "gate_not_found"


class GateClosed(StepwellError):
    """The gate was decided about already, or its time is up."""

    code = "gate_closed"


class GateDrifted(StepwellError):
    """What is asked is not what whoever decided was shown."""

    code = "gate_drifted"


class NotAnApprover(StepwellError):
    """Somebody else has to decide about the gate."""

    code = "not_an_approver"


class TokenInvalid(StepwellError):
    """A gate's token is wrong or was used already."""

    code = "token_invalid"


class GateDenied(StepwellError, NonRetryable):
    """Somebody denied what a node asked for."""

    code = "gate_denied"


class RunDenied(GateDenied):
    """Somebody denied what a node asked for, and so the run is cancelled."""

    code = "denied"


class GateTimedOut(StepwellError, NonRetryable):
    """Nobody decided about a gate in time."""

    code = "gate_timed_out"


class TaskFailed(StepwellError):
    """A task was reported as failed, or not reported in time."""

    code = "task_failed"


class FunctionUnknown(StepwellError):
    """A node names a Python function that nobody here has."""

    code = "function_unknown"


class StepTimedOut(StepwellError, TimeoutError):
    """A step function ran longer than its timeout."""

    code = "step_timed_out"


class WaitTimedOut(StepwellError, TimeoutError):
    """The awaited event did not come in time."""

    code = "wait_timed_out"


class StepFailed(StepwellError):
    """A step used up its attempts; `error` is what was recorded of the last one."""

    code = "step_failed"

    def __init__(self, message: str, *, error: Any = None, step: str | None = None) -> None:
        super().__init__(message)
        self.error = error
        self.step = step


class RunEndedBadly(StepwellError):
    """A run that was waited for did not complete."""

    how = "did not complete"

    def __init__(self, run_id: str, error: Any) -> None:
        reason = f": {error.type}: {error.message}" if error is not None else "."
        super().__init__(f"Run {run_id} {self.how}{reason}")
        self.run_id = run_id
        self.error = error


class RunFailed(RunEndedBadly):
    """The run failed; `error` has type, message and step."""

    code = "run_failed"
    how = "failed"


class RunCancelled(RunEndedBadly):
    """The run was cancelled."""

    code = "run_cancelled"
    how = "was cancelled"


class RunTimedOut(RunEndedBadly):
    """The run passed its deadline, or waited in the queue longer than it may."""

    code = "run_timed_out"
    how = "timed out"


class TriggerInvalid(InvalidInput):
    """The config of a trigger has fields that do not fit."""

    code = "trigger_invalid"


class WebhookUnready(StepwellError):
    """A webhook is not set up rightly, and can take nothing until it is; its refusals say how."""

    code = "webhook_unready"


class TriggerNotFound(InvalidInput):
    """There is no such trigger in this workspace."""

    code = "trigger_not_found"


class TriggerExists(InvalidInput):
    """Another trigger has that name, or its webhook that path."""

    code = "trigger_exists"


class TriggerDisabled(InvalidInput):
    """The trigger is disabled, or was paused because it failed too often."""

    code = "trigger_disabled"


class TimesMissed(StepwellError):
    """A schedule had times while nothing was there that could fire it."""

    code = "times_missed"


class RequestUnfit(InvalidInput):
    """A request to a webhook has another method or other headers than it must have."""

    code = "request_unfit"


class RateLimited(StepwellError):
    """There were more requests than are allowed; `details["retry_after"]` is when to try again."""

    code = "rate_limited"


class QuotaExceeded(StepwellError):
    """A limit of the workspace's plan is reached; the message names it, its value and the plan."""

    code = "quota_exceeded"


class QueueFull(StepwellError):
    """No slot is free, and as many runs are queued as `max_queued_runs` lets queue."""

    code = "queue_full"


class Unauthenticated(StepwellError):
    """Nobody knows who asks: a login, token, session or link is missing, wrong or has ended."""

    code = "unauthenticated"


class PermissionDenied(StepwellError):
    """Whoever asks may not do this; `details["needs"]` is the permission that it takes."""

    code = "permission_denied"


class WorkspaceNotFound(InvalidInput):
    """There is no such workspace, or it is none of the caller's."""

    code = "workspace_not_found"


class WorkspaceExists(InvalidInput):
    """There is a workspace with that id already, or something was started under it."""

    code = "workspace_exists"


class UserNotFound(InvalidInput):
    """There is no such user in this workspace."""

    code = "user_not_found"


class UserExists(InvalidInput):
    """There is a user of that name already."""

    code = "user_exists"


class LastOwner(InvalidInput):
    """The workspace would have no owner left."""

    code = "last_owner"


class PasswordInvalid(InvalidInput):
    """The password is too short or too long, or the current one that goes with it is wrong."""

    code = "password_invalid"


class TokenNotFound(InvalidInput):
    """There is no such token in this workspace."""

    code = "token_not_found"


class SessionNotFound(InvalidInput):
    """The user has no such session."""

    code = "session_not_found"


class HeadersTooLarge(InvalidInput):
    """A request has more headers, or a longer path, than the server takes."""

    code = "headers_too_large"


class RequestInvalid(InvalidInput):
    """What came over a connection is no request of HTTP that can be understood."""

    code = "request_invalid"


class HostUnknown(InvalidInput):
    """A request names a host that the server does not go by."""

    code = "host_unknown"


class OriginRefused(StepwellError):
    """A browser sent a session's cookie, or anything to `/mcp`, on behalf of another site."""

    code = "origin_refused"


class AddressUnavailable(StepwellError):
    """A server cannot listen at the address it was given."""

    code = "address_unavailable"


class RouteNotFound(StepwellError):
    """Nothing is found under that path of the server."""

    code = "route_not_found"


class MethodNotAllowed(StepwellError):
    """What is found under that path does not take this method."""

    code = "method_not_allowed"


class Elsewhere(Exception):
    """A step of this run needs a worker that has another program."""

    def __init__(self, program: str) -> None:
        super().__init__(program)
        self.program = program


class Suspended(BaseException):
    """The program leaves memory; its run goes on later. Never caught by user code."""


class Fenced(BaseException):
    """Another worker owns this run now, or it has ended: nothing more can be recorded."""
