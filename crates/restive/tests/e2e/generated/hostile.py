# Made by `restive generate python` for the service 2. "Äpfel" */ """ \, version 2026-01-01. Do not
# edit: generate it again when the schema changes.

from __future__ import annotations

from enum import Enum
from typing import (
    Any,
    AsyncIterator,
    Generic,
    Iterator,
    Literal,
    Mapping,
    Sequence,
    TypedDict,
    TypeVar,
    Union,
    cast as _cast,
)

from restive_client import AsyncClient, AsyncList, Client, List, path

T = TypeVar("T")
K = TypeVar("K")
D = TypeVar("D")


class Null(Enum):
    """In a filter: finds records without a value."""

    NULL = "null"


NULL = Null.NULL

# A filter: one value or several.
Filter = Union[T, Null, Sequence[Union[T, Null]]]


class RequestOptions(TypedDict, total=False):
    headers: Mapping[str, str]
    timeout: float
    max_retries: int
    version: str


class WriteOptions(RequestOptions, total=False):
    idempotency_key: str
    # An ETag, or a record that was read: write only if it has not changed since.
    if_match: Any


class LiveMessage(Generic[K, D]):
    """A message of the live channels."""

    type: K
    data: D
    position: str


EverythingChoice = Literal[
    "a\"b",
    "c\\d",
    "e,f",
    "null",
    "",
    "ü",
    "1",
    "self",
    "E f",
    "e-f",
    "\u202e\n*/",
]


EverythingCreateValue = Literal["x"]


EverythingSort = Literal[
    "created_at",
    "-created_at",
    "updated_at",
    "-updated_at",
    "text",
    "-text",
    "whole",
    "-whole",
    "moment",
    "-moment",
]


class Everything(TypedDict):
    """A \"quoted\" description */ with \\ a backslash. And a second line."""

    id: str
    object: Literal["everything"]
    text: str
    whole: int | None
    real: float | None
    flag: bool | None
    moment: str | None
    day: str | None
    free: dict[str, Any] | None
    texts: list[str]
    moments: list[str] | None
    flags: list[bool] | None
    shown: int | None
    # Use `text`. */ """ \ Deprecated.
    old: str | None
    choice: EverythingChoice | None
    create: EverythingCreateValue | None
    itself: str | None
    created_at: str
    updated_at: str


class _EverythingCreateRequired(TypedDict):
    text: str
    texts: Sequence[str]
    hidden: str


class _EverythingCreateOptional(TypedDict, total=False):
    whole: int | None
    real: float | None
    flag: bool | None
    moment: str | None
    day: str | None
    free: Mapping[str, Any] | None
    moments: Sequence[str] | None
    flags: Sequence[bool] | None
    # Use `text`. */ """ \ Deprecated.
    old: str | None
    choice: EverythingChoice | None
    create: EverythingCreateValue | None
    itself: str | None


class EverythingCreate(_EverythingCreateRequired, _EverythingCreateOptional):
    """A new everything."""


class EverythingUpdate(TypedDict, total=False):
    """The fields to change; None clears a field."""

    text: str
    whole: int | None
    real: float | None
    flag: bool | None
    moment: str | None
    day: str | None
    free: Mapping[str, Any] | None
    texts: Sequence[str]
    moments: Sequence[str] | None
    flags: Sequence[bool] | None
    hidden: str
    # Use `text`. */ """ \ Deprecated.
    old: str | None
    choice: EverythingChoice | None
    create: EverythingCreateValue | None
    itself: str | None


KeywordStatus = Literal["await", "true", "none"]


KeywordImportFrom = Literal["in"]


KeywordMarkAsReadStatus = Literal["a"]


KeywordSort = Literal["created_at", "-created_at", "updated_at", "-updated_at"]


# A record of `keywords`.
Keyword = TypedDict(
    "Keyword",
    {
        "id": 'str',
        "object": 'Literal["keyword"]',
        "class": 'str',
        "from": 'str | None',
        "self": 'str | None',
        "options": 'str | None',
        "type": 'str | None',
        "match": 'int | None',
        "async": 'bool | None',
        "await": 'bool | None',
        "fn": 'bool | None',
        "crate": 'bool | None',
        "super": 'bool | None',
        "lambda": 'bool | None',
        "none": 'bool | None',
        "str": 'str | None',
        "int": 'int | None',
        "list": 'list[str] | None',
        "dict": 'dict[str, Any] | None',
        "constructor": 'str | None',
        "default": 'str',
        "query": 'str | None',
        # The state; changed by actions.
        "status": 'KeywordStatus',
        "created_at": 'str',
        "updated_at": 'str',
    },
)


_KeywordCreateRequired = TypedDict(
    "_KeywordCreateRequired",
    {
        "class": 'str',
        "default": 'str',
    },
)


_KeywordCreateOptional = TypedDict(
    "_KeywordCreateOptional",
    {
        "from": 'str | None',
        "self": 'str | None',
        "options": 'str | None',
        "type": 'str | None',
        "match": 'int | None',
        "async": 'bool | None',
        "await": 'bool | None',
        "fn": 'bool | None',
        "crate": 'bool | None',
        "super": 'bool | None',
        "lambda": 'bool | None',
        "none": 'bool | None',
        "str": 'str | None',
        "int": 'int | None',
        "list": 'Sequence[str] | None',
        "dict": 'Mapping[str, Any] | None',
        "constructor": 'str | None',
        "query": 'str | None',
    },
    total=False,
)


class KeywordCreate(_KeywordCreateRequired, _KeywordCreateOptional):
    """A new keyword."""


# The fields to change; None clears a field.
KeywordUpdate = TypedDict(
    "KeywordUpdate",
    {
        "class": 'str',
        "from": 'str | None',
        "self": 'str | None',
        "options": 'str | None',
        "type": 'str | None',
        "match": 'int | None',
        "async": 'bool | None',
        "await": 'bool | None',
        "fn": 'bool | None',
        "crate": 'bool | None',
        "super": 'bool | None',
        "lambda": 'bool | None',
        "none": 'bool | None',
        "str": 'str | None',
        "int": 'int | None',
        "list": 'Sequence[str] | None',
        "dict": 'Mapping[str, Any] | None',
        "constructor": 'str | None',
        "default": 'str',
        "query": 'str | None',
    },
    total=False,
)


# Parameters of `str`.
KeywordStrParams = TypedDict(
    "KeywordStrParams",
    {
        "dict": 'Mapping[str, Any] | None',
        "str": 'str | None',
    },
    total=False,
)


_KeywordImportParamsRequired = TypedDict(
    "_KeywordImportParamsRequired",
    {
        "class": 'str',
    },
)


_KeywordImportParamsOptional = TypedDict(
    "_KeywordImportParamsOptional",
    {
        "from": 'KeywordImportFrom | None',
    },
    total=False,
)


class KeywordImportParams(_KeywordImportParamsRequired, _KeywordImportParamsOptional):
    """Parameters of `import`."""


class KeywordMarkAsReadParams(TypedDict, total=False):
    """Parameters of `mark-as-read`."""

    self: str | None
    status: KeywordMarkAsReadStatus | None


ClientRecordSort = Literal["created_at", "-created_at", "updated_at", "-updated_at"]


class ClientRecord(TypedDict):
    """A record of `clients`."""

    id: str
    object: Literal["client"]
    promise: str | None
    created_at: str
    updated_at: str


RecordSort = Literal["created_at", "-created_at", "updated_at", "-updated_at"]


class Record(TypedDict):
    """A record of `post`."""

    id: str
    object: Literal["record"]
    created_at: str
    updated_at: str


StringSort = Literal["created_at", "-created_at", "updated_at", "-updated_at"]


class String(TypedDict):
    """A record of `strings`."""

    id: str
    object: Literal["string"]
    created_at: str
    updated_at: str


OptionSort = Literal["created_at", "-created_at", "updated_at", "-updated_at"]


class Option(TypedDict):
    """A record of `options`."""

    id: str
    object: Literal["option"]
    created_at: str
    updated_at: str


ValueSort = Literal["created_at", "-created_at", "updated_at", "-updated_at"]


class Value(TypedDict):
    """A record of `values`."""

    id: str
    object: Literal["value"]
    created_at: str
    updated_at: str


AsyncClientRecordSort = Literal["created_at", "-created_at", "updated_at", "-updated_at"]


class AsyncClientRecord(TypedDict):
    """A record of `async-clients`."""

    id: str
    object: Literal["async_client"]
    created_at: str
    updated_at: str


ClientCreateSort = Literal["created_at", "-created_at", "updated_at", "-updated_at"]


class ClientCreate(TypedDict):
    """A record of `client-creates`."""

    id: str
    object: Literal["client_create"]
    created_at: str
    updated_at: str


SheepSort = Literal["created_at", "-created_at", "updated_at", "-updated_at"]


class Sheep(TypedDict):
    """A record of `sheep`."""

    id: str
    object: Literal["sheep"]
    created_at: str
    updated_at: str


MessageSort = Literal["created_at", "-created_at", "updated_at", "-updated_at"]


class Message(TypedDict):
    """A record of `messages`."""

    id: int
    object: Literal["message"]
    text: str
    created_at: str
    updated_at: str


class MessageCreate(TypedDict):
    """A new message."""

    text: str


PromiseSort = Literal["created_at", "-created_at", "updated_at", "-updated_at"]


class Promise(TypedDict):
    """A record of `promises`."""

    id: str
    object: Literal["promise"]
    # The client this belongs to, from the path.
    client: str
    text: str | None
    created_at: str
    updated_at: str


NoneRecordSort = Literal["created_at", "-created_at", "updated_at", "-updated_at"]


class NoneRecord(TypedDict):
    """A record of `follow`."""

    id: str
    object: Literal["none"]
    # The promise this belongs to, from the path.
    promise: str
    created_at: str
    updated_at: str


class _Request(TypedDict):
    id: str | None
    idempotency_key: str | None


class _Envelope(TypedDict):
    id: str
    object: Literal["event"]
    api_version: str
    # Unix time in seconds.
    created: int
    livemode: bool
    pending_webhooks: int
    request: _Request


class _AnyData(TypedDict):
    """If the record was erased, only `id`, `object` and `erased` are in `object`."""

    object: dict[str, Any]


class _AnyChange(_AnyData, total=False):
    # Old values of the fields that changed.
    previous_attributes: dict[str, Any]


class _EverythingData(TypedDict):
    """If the record was erased, only `id`, `object` and `erased` are in `object`."""

    object: Everything


class _EverythingChange(_EverythingData, total=False):
    # Old values of the fields that changed.
    previous_attributes: dict[str, Any]


class _KeywordData(TypedDict):
    """If the record was erased, only `id`, `object` and `erased` are in `object`."""

    object: Keyword


class _KeywordChange(_KeywordData, total=False):
    # Old values of the fields that changed.
    previous_attributes: dict[str, Any]


class _ClientRecordData(TypedDict):
    """If the record was erased, only `id`, `object` and `erased` are in `object`."""

    object: ClientRecord


class _ClientRecordChange(_ClientRecordData, total=False):
    # Old values of the fields that changed.
    previous_attributes: dict[str, Any]


class _RecordData(TypedDict):
    """If the record was erased, only `id`, `object` and `erased` are in `object`."""

    object: Record


class _RecordChange(_RecordData, total=False):
    # Old values of the fields that changed.
    previous_attributes: dict[str, Any]


class _StringData(TypedDict):
    """If the record was erased, only `id`, `object` and `erased` are in `object`."""

    object: String


class _StringChange(_StringData, total=False):
    # Old values of the fields that changed.
    previous_attributes: dict[str, Any]


class _OptionData(TypedDict):
    """If the record was erased, only `id`, `object` and `erased` are in `object`."""

    object: Option


class _OptionChange(_OptionData, total=False):
    # Old values of the fields that changed.
    previous_attributes: dict[str, Any]


class _ValueData(TypedDict):
    """If the record was erased, only `id`, `object` and `erased` are in `object`."""

    object: Value


class _ValueChange(_ValueData, total=False):
    # Old values of the fields that changed.
    previous_attributes: dict[str, Any]


class _AsyncClientRecordData(TypedDict):
    """If the record was erased, only `id`, `object` and `erased` are in `object`."""

    object: AsyncClientRecord


class _AsyncClientRecordChange(_AsyncClientRecordData, total=False):
    # Old values of the fields that changed.
    previous_attributes: dict[str, Any]


class _ClientCreateData(TypedDict):
    """If the record was erased, only `id`, `object` and `erased` are in `object`."""

    object: ClientCreate


class _ClientCreateChange(_ClientCreateData, total=False):
    # Old values of the fields that changed.
    previous_attributes: dict[str, Any]


class _SheepData(TypedDict):
    """If the record was erased, only `id`, `object` and `erased` are in `object`."""

    object: Sheep


class _SheepChange(_SheepData, total=False):
    # Old values of the fields that changed.
    previous_attributes: dict[str, Any]


class _MessageData(TypedDict):
    """If the record was erased, only `id`, `object` and `erased` are in `object`."""

    object: Message


class _MessageChange(_MessageData, total=False):
    # Old values of the fields that changed.
    previous_attributes: dict[str, Any]


class _PromiseData(TypedDict):
    """If the record was erased, only `id`, `object` and `erased` are in `object`."""

    object: Promise


class _PromiseChange(_PromiseData, total=False):
    # Old values of the fields that changed.
    previous_attributes: dict[str, Any]


class _NoneRecordData(TypedDict):
    """If the record was erased, only `id`, `object` and `erased` are in `object`."""

    object: NoneRecord


class _NoneRecordChange(_NoneRecordData, total=False):
    # Old values of the fields that changed.
    previous_attributes: dict[str, Any]


class Event1a2bEvent(_Envelope):
    """Begins with a digit. */ \"\"\""""

    type: Literal["1a.2b"]
    data: _AnyChange


class ABCEvent(_Envelope):
    """The event `a.b_c`."""

    type: Literal["a.b_c"]
    data: _AnyChange


class ABCEvent2(_Envelope):
    """The event `a_b.c`."""

    type: Literal["a_b.c"]
    data: _AnyChange


class EverythingCreatedEvent(_Envelope):
    """The event `everything.created`."""

    type: Literal["everything.created"]
    data: _EverythingData


class EverythingDeletedEvent(_Envelope):
    """The event `everything.deleted`."""

    type: Literal["everything.deleted"]
    data: _EverythingData


class EverythingUpdatedEvent(_Envelope):
    """The event `everything.updated`."""

    type: Literal["everything.updated"]
    data: _EverythingChange


class KeywordConstructorEvent(_Envelope):
    """The event `keyword.constructor`."""

    type: Literal["keyword.constructor"]
    data: _KeywordChange


class KeywordCreatedEvent(_Envelope):
    """The event `keyword.created`."""

    type: Literal["keyword.created"]
    data: _KeywordData


class KeywordDeletedEvent(_Envelope):
    """The event `keyword.deleted`."""

    type: Literal["keyword.deleted"]
    data: _KeywordData


class KeywordDictEvent(_Envelope):
    """The event `keyword.dict`."""

    type: Literal["keyword.dict"]
    data: _KeywordChange


class KeywordImportEvent(_Envelope):
    """The event `keyword.import`."""

    type: Literal["keyword.import"]
    data: _KeywordChange


class KeywordListEvent(_Envelope):
    """The event `keyword.list`."""

    type: Literal["keyword.list"]
    data: _KeywordChange


class KeywordMarkAsReadEvent(_Envelope):
    """The event `keyword.mark_as_read`."""

    type: Literal["keyword.mark_as_read"]
    data: _KeywordChange


class KeywordStrEvent(_Envelope):
    """The event `keyword.str`."""

    type: Literal["keyword.str"]
    data: _KeywordChange


class KeywordThenEvent(_Envelope):
    """The event `keyword.then`."""

    type: Literal["keyword.then"]
    data: _KeywordChange


class KeywordTrueEvent(_Envelope):
    """The event `keyword.true`."""

    type: Literal["keyword.true"]
    data: _KeywordChange


class KeywordUpdatedEvent(_Envelope):
    """The event `keyword.updated`."""

    type: Literal["keyword.updated"]
    data: _KeywordChange


class MessageCreatedEvent(_Envelope):
    """The event `message.created`."""

    type: Literal["message.created"]
    data: _MessageData


class MessageCreatedEventEvent(_Envelope):
    """The event `message_created.event`."""

    type: Literal["message_created.event"]
    data: _AnyChange


# Every event, told apart by `type`: in webhooks and in the log.
Service2PfelEvent = Union[
    Event1a2bEvent,
    ABCEvent,
    ABCEvent2,
    EverythingCreatedEvent,
    EverythingDeletedEvent,
    EverythingUpdatedEvent,
    KeywordConstructorEvent,
    KeywordCreatedEvent,
    KeywordDeletedEvent,
    KeywordDictEvent,
    KeywordImportEvent,
    KeywordListEvent,
    KeywordMarkAsReadEvent,
    KeywordStrEvent,
    KeywordThenEvent,
    KeywordTrueEvent,
    KeywordUpdatedEvent,
    MessageCreatedEvent,
    MessageCreatedEventEvent,
]

# Every message of the live channels that is in the log, told apart by `type`.
Service2PfelMessage = Union[
    LiveMessage[Literal["1a.2b"], Event1a2bEvent],
    LiveMessage[Literal["a.b_c"], ABCEvent],
    LiveMessage[Literal["a_b.c"], ABCEvent2],
    LiveMessage[Literal["everything.created"], EverythingCreatedEvent],
    LiveMessage[Literal["everything.deleted"], EverythingDeletedEvent],
    LiveMessage[Literal["everything.updated"], EverythingUpdatedEvent],
    LiveMessage[Literal["keyword.constructor"], KeywordConstructorEvent],
    LiveMessage[Literal["keyword.created"], KeywordCreatedEvent],
    LiveMessage[Literal["keyword.deleted"], KeywordDeletedEvent],
    LiveMessage[Literal["keyword.dict"], KeywordDictEvent],
    LiveMessage[Literal["keyword.import"], KeywordImportEvent],
    LiveMessage[Literal["keyword.list"], KeywordListEvent],
    LiveMessage[Literal["keyword.mark_as_read"], KeywordMarkAsReadEvent],
    LiveMessage[Literal["keyword.str"], KeywordStrEvent],
    LiveMessage[Literal["keyword.then"], KeywordThenEvent],
    LiveMessage[Literal["keyword.true"], KeywordTrueEvent],
    LiveMessage[Literal["keyword.updated"], KeywordUpdatedEvent],
    LiveMessage[Literal["note"], Message],
    LiveMessage[Literal["message_created.event"], MessageCreatedEventEvent],
]


class Everythings:
    """The operations on `everythings`."""

    def __init__(self, client: Client, path: str) -> None:
        self._client = client
        self._path = path

    def list(
        self,
        *,
        id: Filter[str] | None = None,
        created_at: Filter[str] | None = None,
        updated_at: Filter[str] | None = None,
        text: Filter[str] | None = None,
        whole: Filter[int] | None = None,
        real: Filter[float] | None = None,
        flag: Filter[bool] | None = None,
        moment: Filter[str] | None = None,
        day: Filter[str] | None = None,
        choice: Filter[EverythingChoice] | None = None,
        itself: Filter[str] | None = None,
        min_created_at: str | None = None,
        max_created_at: str | None = None,
        min_updated_at: str | None = None,
        max_updated_at: str | None = None,
        min_whole: int | None = None,
        max_whole: int | None = None,
        min_real: float | None = None,
        max_real: float | None = None,
        min_moment: str | None = None,
        max_moment: str | None = None,
        min_day: str | None = None,
        max_day: str | None = None,
        q: str | None = None,
        sort: EverythingSort | Sequence[EverythingSort] | None = None,
        limit: int | None = None,
        page: int | None = None,
        after: str | None = None,
        options: RequestOptions | None = None,
    ) -> List[Everything]:
        """All records that match, read page by page."""
        _sent = _query(
            {
                "id": id,
                "created_at": created_at,
                "updated_at": updated_at,
                "text": text,
                "whole": whole,
                "real": real,
                "flag": flag,
                "moment": moment,
                "day": day,
                "choice": choice,
                "itself": itself,
                "min_created_at": min_created_at,
                "max_created_at": max_created_at,
                "min_updated_at": min_updated_at,
                "max_updated_at": max_updated_at,
                "min_whole": min_whole,
                "max_whole": max_whole,
                "min_real": min_real,
                "max_real": max_real,
                "min_moment": min_moment,
                "max_moment": max_moment,
                "min_day": min_day,
                "max_day": max_day,
                "q": q,
                "sort": sort,
                "limit": limit,
                "page": page,
                "after": after,
            }
        )
        return _cast("List[Everything]", self._client.list(self._path, _sent, **(options or {})))

    def get(self, id: str, *, options: RequestOptions | None = None) -> Everything:
        """One record."""
        return _cast("Everything", self._client.get(self._path + path("/{}", id), **(options or {})))

    def create(self, body: EverythingCreate, *, options: WriteOptions | None = None) -> Everything:
        """Creates a record."""
        return _cast("Everything", self._client.post(self._path, body, **(options or {})))

    def replace(
        self, id: str, body: EverythingCreate, *, options: WriteOptions | None = None
    ) -> Everything:
        """Replaces a record: fields that are omitted get their default or None."""
        return _cast("Everything", self._client.put(self._path + path("/{}", id), body, **(options or {})))

    def update(
        self, id: str, changes: EverythingUpdate, *, options: WriteOptions | None = None
    ) -> Everything:
        """Changes some fields of a record."""
        return _cast("Everything", self._client.patch(self._path + path("/{}", id), changes, **(options or {})))

    def delete(self, id: str, *, options: WriteOptions | None = None) -> None:
        """Deletes a record."""
        self._client.delete(self._path + path("/{}", id), **(options or {}))


class Keywords:
    """The operations on `keywords`."""

    def __init__(self, client: Client, path: str) -> None:
        self._client = client
        self._path = path

    def list(
        self,
        *,
        id: Filter[str] | None = None,
        created_at: Filter[str] | None = None,
        updated_at: Filter[str] | None = None,
        class_: Filter[str] | None = None,
        from_: Filter[str] | None = None,
        self_: Filter[str] | None = None,
        options_: Filter[str] | None = None,
        type: Filter[str] | None = None,
        match: Filter[int] | None = None,
        query: Filter[str] | None = None,
        status: Filter[KeywordStatus] | None = None,
        min_created_at: str | None = None,
        max_created_at: str | None = None,
        min_updated_at: str | None = None,
        max_updated_at: str | None = None,
        min_match: int | None = None,
        max_match: int | None = None,
        sort: KeywordSort | Sequence[KeywordSort] | None = None,
        limit: int | None = None,
        page: int | None = None,
        after: str | None = None,
        options: RequestOptions | None = None,
    ) -> List[Keyword]:
        """All records that match, read page by page."""
        _sent = _query(
            {
                "id": id,
                "created_at": created_at,
                "updated_at": updated_at,
                "class": class_,
                "from": from_,
                "self": self_,
                "options": options_,
                "type": type,
                "match": match,
                "query": query,
                "status": status,
                "min_created_at": min_created_at,
                "max_created_at": max_created_at,
                "min_updated_at": min_updated_at,
                "max_updated_at": max_updated_at,
                "min_match": min_match,
                "max_match": max_match,
                "sort": sort,
                "limit": limit,
                "page": page,
                "after": after,
            }
        )
        return _cast("List[Keyword]", self._client.list(self._path, _sent, **(options or {})))

    def get(self, id: str, *, options: RequestOptions | None = None) -> Keyword:
        """One record."""
        return _cast("Keyword", self._client.get(self._path + path("/{}", id), **(options or {})))

    def create(self, body: KeywordCreate, *, options: WriteOptions | None = None) -> Keyword:
        """Creates a record."""
        return _cast("Keyword", self._client.post(self._path, body, **(options or {})))

    def replace(
        self, id: str, body: KeywordCreate, *, options: WriteOptions | None = None
    ) -> Keyword:
        """Replaces a record: fields that are omitted get their default or None."""
        return _cast("Keyword", self._client.put(self._path + path("/{}", id), body, **(options or {})))

    def update(
        self, id: str, changes: KeywordUpdate, *, options: WriteOptions | None = None
    ) -> Keyword:
        """Changes some fields of a record."""
        return _cast("Keyword", self._client.patch(self._path + path("/{}", id), changes, **(options or {})))

    def delete(self, id: str, *, options: WriteOptions | None = None) -> None:
        """Deletes a record."""
        self._client.delete(self._path + path("/{}", id), **(options or {}))

    def delete_(self, id: str, *, options: WriteOptions | None = None) -> Keyword:
        """Runs the action `delete`."""
        return _cast("Keyword", self._client.post(self._path + path("/{}/delete", id), None, **(options or {})))

    def list_(self, id: str, *, options: WriteOptions | None = None) -> Keyword:
        """Runs the action `list`."""
        return _cast("Keyword", self._client.post(self._path + path("/{}/list", id), None, **(options or {})))

    def str_(
        self, id: str, params: KeywordStrParams | None = None, *, options: WriteOptions | None = None
    ) -> Keyword:
        """Runs the action `str`."""
        return _cast("Keyword", self._client.post(self._path + path("/{}/str", id), params or {}, **(options or {})))

    def dict_(self, id: str, *, options: WriteOptions | None = None) -> Keyword:
        """Runs the action `dict`."""
        return _cast("Keyword", self._client.post(self._path + path("/{}/dict", id), None, **(options or {})))

    def constructor(self, id: str, *, options: WriteOptions | None = None) -> Keyword:
        """Runs the action `constructor`."""
        return _cast("Keyword", self._client.post(self._path + path("/{}/constructor", id), None, **(options or {})))

    def then(self, id: str, *, options: WriteOptions | None = None) -> Keyword:
        """Runs the action `then`."""
        return _cast("Keyword", self._client.post(self._path + path("/{}/then", id), None, **(options or {})))

    def import_(
        self, id: str, params: KeywordImportParams, *, options: WriteOptions | None = None
    ) -> Keyword:
        """Runs the action `import`."""
        return _cast("Keyword", self._client.post(self._path + path("/{}/import", id), params, **(options or {})))

    def mark_as_read(
        self, id: str, params: KeywordMarkAsReadParams | None = None, *, options: WriteOptions | None = None
    ) -> Keyword:
        """Runs the action `mark-as-read`."""
        return _cast("Keyword", self._client.post(self._path + path("/{}/mark-as-read", id), params or {}, **(options or {})))


class Clients:
    """The operations on `clients`."""

    def __init__(self, client: Client, path: str) -> None:
        self._client = client
        self._path = path

    def list(
        self,
        *,
        id: Filter[str] | None = None,
        created_at: Filter[str] | None = None,
        updated_at: Filter[str] | None = None,
        promise: Filter[str] | None = None,
        min_created_at: str | None = None,
        max_created_at: str | None = None,
        min_updated_at: str | None = None,
        max_updated_at: str | None = None,
        sort: ClientRecordSort | Sequence[ClientRecordSort] | None = None,
        limit: int | None = None,
        page: int | None = None,
        after: str | None = None,
        options: RequestOptions | None = None,
    ) -> List[ClientRecord]:
        """All records that match, read page by page."""
        _sent = _query(
            {
                "id": id,
                "created_at": created_at,
                "updated_at": updated_at,
                "promise": promise,
                "min_created_at": min_created_at,
                "max_created_at": max_created_at,
                "min_updated_at": min_updated_at,
                "max_updated_at": max_updated_at,
                "sort": sort,
                "limit": limit,
                "page": page,
                "after": after,
            }
        )
        return _cast("List[ClientRecord]", self._client.list(self._path, _sent, **(options or {})))

    def get(self, id: str, *, options: RequestOptions | None = None) -> ClientRecord:
        """One record."""
        return _cast("ClientRecord", self._client.get(self._path + path("/{}", id), **(options or {})))

    def promises(self, id: str) -> Promises:
        """The `promises` of one record."""
        return Promises(self._client, self._path + path("/{}/promises", id))


class Post:
    """The operations on `post`."""

    def __init__(self, client: Client, path: str) -> None:
        self._client = client
        self._path = path

    def list(
        self,
        *,
        id: Filter[str] | None = None,
        created_at: Filter[str] | None = None,
        updated_at: Filter[str] | None = None,
        min_created_at: str | None = None,
        max_created_at: str | None = None,
        min_updated_at: str | None = None,
        max_updated_at: str | None = None,
        sort: RecordSort | Sequence[RecordSort] | None = None,
        limit: int | None = None,
        page: int | None = None,
        after: str | None = None,
        options: RequestOptions | None = None,
    ) -> List[Record]:
        """All records that match, read page by page."""
        _sent = _query(
            {
                "id": id,
                "created_at": created_at,
                "updated_at": updated_at,
                "min_created_at": min_created_at,
                "max_created_at": max_created_at,
                "min_updated_at": min_updated_at,
                "max_updated_at": max_updated_at,
                "sort": sort,
                "limit": limit,
                "page": page,
                "after": after,
            }
        )
        return _cast("List[Record]", self._client.list(self._path, _sent, **(options or {})))

    def get(self, id: str, *, options: RequestOptions | None = None) -> Record:
        """One record."""
        return _cast("Record", self._client.get(self._path + path("/{}", id), **(options or {})))


class Strings:
    """The operations on `strings`."""

    def __init__(self, client: Client, path: str) -> None:
        self._client = client
        self._path = path

    def list(
        self,
        *,
        id: Filter[str] | None = None,
        created_at: Filter[str] | None = None,
        updated_at: Filter[str] | None = None,
        min_created_at: str | None = None,
        max_created_at: str | None = None,
        min_updated_at: str | None = None,
        max_updated_at: str | None = None,
        sort: StringSort | Sequence[StringSort] | None = None,
        limit: int | None = None,
        page: int | None = None,
        after: str | None = None,
        options: RequestOptions | None = None,
    ) -> List[String]:
        """All records that match, read page by page."""
        _sent = _query(
            {
                "id": id,
                "created_at": created_at,
                "updated_at": updated_at,
                "min_created_at": min_created_at,
                "max_created_at": max_created_at,
                "min_updated_at": min_updated_at,
                "max_updated_at": max_updated_at,
                "sort": sort,
                "limit": limit,
                "page": page,
                "after": after,
            }
        )
        return _cast("List[String]", self._client.list(self._path, _sent, **(options or {})))

    def get(self, id: str, *, options: RequestOptions | None = None) -> String:
        """One record."""
        return _cast("String", self._client.get(self._path + path("/{}", id), **(options or {})))


class Options:
    """The operations on `options`."""

    def __init__(self, client: Client, path: str) -> None:
        self._client = client
        self._path = path

    def list(
        self,
        *,
        id: Filter[str] | None = None,
        created_at: Filter[str] | None = None,
        updated_at: Filter[str] | None = None,
        min_created_at: str | None = None,
        max_created_at: str | None = None,
        min_updated_at: str | None = None,
        max_updated_at: str | None = None,
        sort: OptionSort | Sequence[OptionSort] | None = None,
        limit: int | None = None,
        page: int | None = None,
        after: str | None = None,
        options: RequestOptions | None = None,
    ) -> List[Option]:
        """All records that match, read page by page."""
        _sent = _query(
            {
                "id": id,
                "created_at": created_at,
                "updated_at": updated_at,
                "min_created_at": min_created_at,
                "max_created_at": max_created_at,
                "min_updated_at": min_updated_at,
                "max_updated_at": max_updated_at,
                "sort": sort,
                "limit": limit,
                "page": page,
                "after": after,
            }
        )
        return _cast("List[Option]", self._client.list(self._path, _sent, **(options or {})))

    def get(self, id: str, *, options: RequestOptions | None = None) -> Option:
        """One record."""
        return _cast("Option", self._client.get(self._path + path("/{}", id), **(options or {})))


class Values:
    """The operations on `values`."""

    def __init__(self, client: Client, path: str) -> None:
        self._client = client
        self._path = path

    def list(
        self,
        *,
        id: Filter[str] | None = None,
        created_at: Filter[str] | None = None,
        updated_at: Filter[str] | None = None,
        min_created_at: str | None = None,
        max_created_at: str | None = None,
        min_updated_at: str | None = None,
        max_updated_at: str | None = None,
        sort: ValueSort | Sequence[ValueSort] | None = None,
        limit: int | None = None,
        page: int | None = None,
        after: str | None = None,
        options: RequestOptions | None = None,
    ) -> List[Value]:
        """All records that match, read page by page."""
        _sent = _query(
            {
                "id": id,
                "created_at": created_at,
                "updated_at": updated_at,
                "min_created_at": min_created_at,
                "max_created_at": max_created_at,
                "min_updated_at": min_updated_at,
                "max_updated_at": max_updated_at,
                "sort": sort,
                "limit": limit,
                "page": page,
                "after": after,
            }
        )
        return _cast("List[Value]", self._client.list(self._path, _sent, **(options or {})))

    def get(self, id: str, *, options: RequestOptions | None = None) -> Value:
        """One record."""
        return _cast("Value", self._client.get(self._path + path("/{}", id), **(options or {})))


class AsyncClientsCollection:
    """The operations on `async-clients`."""

    def __init__(self, client: Client, path: str) -> None:
        self._client = client
        self._path = path

    def list(
        self,
        *,
        id: Filter[str] | None = None,
        created_at: Filter[str] | None = None,
        updated_at: Filter[str] | None = None,
        min_created_at: str | None = None,
        max_created_at: str | None = None,
        min_updated_at: str | None = None,
        max_updated_at: str | None = None,
        sort: AsyncClientRecordSort | Sequence[AsyncClientRecordSort] | None = None,
        limit: int | None = None,
        page: int | None = None,
        after: str | None = None,
        options: RequestOptions | None = None,
    ) -> List[AsyncClientRecord]:
        """All records that match, read page by page."""
        _sent = _query(
            {
                "id": id,
                "created_at": created_at,
                "updated_at": updated_at,
                "min_created_at": min_created_at,
                "max_created_at": max_created_at,
                "min_updated_at": min_updated_at,
                "max_updated_at": max_updated_at,
                "sort": sort,
                "limit": limit,
                "page": page,
                "after": after,
            }
        )
        return _cast("List[AsyncClientRecord]", self._client.list(self._path, _sent, **(options or {})))

    def get(self, id: str, *, options: RequestOptions | None = None) -> AsyncClientRecord:
        """One record."""
        return _cast("AsyncClientRecord", self._client.get(self._path + path("/{}", id), **(options or {})))


class ClientCreates:
    """The operations on `client-creates`."""

    def __init__(self, client: Client, path: str) -> None:
        self._client = client
        self._path = path

    def list(
        self,
        *,
        id: Filter[str] | None = None,
        created_at: Filter[str] | None = None,
        updated_at: Filter[str] | None = None,
        min_created_at: str | None = None,
        max_created_at: str | None = None,
        min_updated_at: str | None = None,
        max_updated_at: str | None = None,
        sort: ClientCreateSort | Sequence[ClientCreateSort] | None = None,
        limit: int | None = None,
        page: int | None = None,
        after: str | None = None,
        options: RequestOptions | None = None,
    ) -> List[ClientCreate]:
        """All records that match, read page by page."""
        _sent = _query(
            {
                "id": id,
                "created_at": created_at,
                "updated_at": updated_at,
                "min_created_at": min_created_at,
                "max_created_at": max_created_at,
                "min_updated_at": min_updated_at,
                "max_updated_at": max_updated_at,
                "sort": sort,
                "limit": limit,
                "page": page,
                "after": after,
            }
        )
        return _cast("List[ClientCreate]", self._client.list(self._path, _sent, **(options or {})))

    def get(self, id: str, *, options: RequestOptions | None = None) -> ClientCreate:
        """One record."""
        return _cast("ClientCreate", self._client.get(self._path + path("/{}", id), **(options or {})))


class SheepCollection:
    """The operations on `sheep`."""

    def __init__(self, client: Client, path: str) -> None:
        self._client = client
        self._path = path

    def list(
        self,
        *,
        id: Filter[str] | None = None,
        created_at: Filter[str] | None = None,
        updated_at: Filter[str] | None = None,
        min_created_at: str | None = None,
        max_created_at: str | None = None,
        min_updated_at: str | None = None,
        max_updated_at: str | None = None,
        sort: SheepSort | Sequence[SheepSort] | None = None,
        limit: int | None = None,
        page: int | None = None,
        after: str | None = None,
        options: RequestOptions | None = None,
    ) -> List[Sheep]:
        """All records that match, read page by page."""
        _sent = _query(
            {
                "id": id,
                "created_at": created_at,
                "updated_at": updated_at,
                "min_created_at": min_created_at,
                "max_created_at": max_created_at,
                "min_updated_at": min_updated_at,
                "max_updated_at": max_updated_at,
                "sort": sort,
                "limit": limit,
                "page": page,
                "after": after,
            }
        )
        return _cast("List[Sheep]", self._client.list(self._path, _sent, **(options or {})))

    def get(self, id: str, *, options: RequestOptions | None = None) -> Sheep:
        """One record."""
        return _cast("Sheep", self._client.get(self._path + path("/{}", id), **(options or {})))


class Messages:
    """The operations on `messages`."""

    def __init__(self, client: Client, path: str) -> None:
        self._client = client
        self._path = path

    def list(
        self,
        *,
        id: Filter[int] | None = None,
        created_at: Filter[str] | None = None,
        updated_at: Filter[str] | None = None,
        min_id: int | None = None,
        max_id: int | None = None,
        min_created_at: str | None = None,
        max_created_at: str | None = None,
        min_updated_at: str | None = None,
        max_updated_at: str | None = None,
        sort: MessageSort | Sequence[MessageSort] | None = None,
        limit: int | None = None,
        page: int | None = None,
        after: str | None = None,
        options: RequestOptions | None = None,
    ) -> List[Message]:
        """All records that match, read page by page."""
        _sent = _query(
            {
                "id": id,
                "created_at": created_at,
                "updated_at": updated_at,
                "min_id": min_id,
                "max_id": max_id,
                "min_created_at": min_created_at,
                "max_created_at": max_created_at,
                "min_updated_at": min_updated_at,
                "max_updated_at": max_updated_at,
                "sort": sort,
                "limit": limit,
                "page": page,
                "after": after,
            }
        )
        return _cast("List[Message]", self._client.list(self._path, _sent, **(options or {})))

    def create(self, body: MessageCreate, *, options: WriteOptions | None = None) -> Message:
        """Creates a record."""
        return _cast("Message", self._client.post(self._path, body, **(options or {})))

    def poll(
        self, *, since: int | str | None = None, wait: bool | None = None, limit: int | None = None, options: RequestOptions | None = None
    ) -> Sequence[Message]:
        """The records after a position, oldest first; with `wait`, as soon as there are some."""
        return _cast("Sequence[Message]", self._client.get("/api/messages", _query({"since": since, "wait": wait, "limit": limit}), **(options or {})))


class Promises:
    """The operations on `promises`."""

    def __init__(self, client: Client, path: str) -> None:
        self._client = client
        self._path = path

    def list(
        self,
        *,
        id: Filter[str] | None = None,
        created_at: Filter[str] | None = None,
        updated_at: Filter[str] | None = None,
        client: Filter[str] | None = None,
        min_created_at: str | None = None,
        max_created_at: str | None = None,
        min_updated_at: str | None = None,
        max_updated_at: str | None = None,
        sort: PromiseSort | Sequence[PromiseSort] | None = None,
        limit: int | None = None,
        page: int | None = None,
        after: str | None = None,
        options: RequestOptions | None = None,
    ) -> List[Promise]:
        """All records that match, read page by page."""
        _sent = _query(
            {
                "id": id,
                "created_at": created_at,
                "updated_at": updated_at,
                "client": client,
                "min_created_at": min_created_at,
                "max_created_at": max_created_at,
                "min_updated_at": min_updated_at,
                "max_updated_at": max_updated_at,
                "sort": sort,
                "limit": limit,
                "page": page,
                "after": after,
            }
        )
        return _cast("List[Promise]", self._client.list(self._path, _sent, **(options or {})))

    def get(self, id: str, *, options: RequestOptions | None = None) -> Promise:
        """One record."""
        return _cast("Promise", self._client.get(self._path + path("/{}", id), **(options or {})))

    def follow(self, id: str) -> Follow:
        """The `follow` of one record."""
        return Follow(self._client, self._path + path("/{}/follow", id))


class Follow:
    """The operations on `follow`."""

    def __init__(self, client: Client, path: str) -> None:
        self._client = client
        self._path = path

    def list(
        self,
        *,
        id: Filter[str] | None = None,
        created_at: Filter[str] | None = None,
        updated_at: Filter[str] | None = None,
        promise: Filter[str] | None = None,
        min_created_at: str | None = None,
        max_created_at: str | None = None,
        min_updated_at: str | None = None,
        max_updated_at: str | None = None,
        sort: NoneRecordSort | Sequence[NoneRecordSort] | None = None,
        limit: int | None = None,
        page: int | None = None,
        after: str | None = None,
        options: RequestOptions | None = None,
    ) -> List[NoneRecord]:
        """All records that match, read page by page."""
        _sent = _query(
            {
                "id": id,
                "created_at": created_at,
                "updated_at": updated_at,
                "promise": promise,
                "min_created_at": min_created_at,
                "max_created_at": max_created_at,
                "min_updated_at": min_updated_at,
                "max_updated_at": max_updated_at,
                "sort": sort,
                "limit": limit,
                "page": page,
                "after": after,
            }
        )
        return _cast("List[NoneRecord]", self._client.list(self._path, _sent, **(options or {})))

    def get(self, id: str, *, options: RequestOptions | None = None) -> NoneRecord:
        """One record."""
        return _cast("NoneRecord", self._client.get(self._path + path("/{}", id), **(options or {})))


class Service2Pfel:
    """The client; `client` sends requests that have no method here."""

    def __init__(self, url: str, key: Any = None, **options: Any) -> None:
        options.setdefault("version", "2026-01-01")
        self.client = Client(url, key, **options)
        self.everythings = Everythings(self.client, "/shop/v2/everythings")
        self.keywords = Keywords(self.client, "/shop/v2/keywords")
        self.clients = Clients(self.client, "/shop/v2/clients")
        self.post = Post(self.client, "/shop/v2/post")
        self.strings = Strings(self.client, "/shop/v2/strings")
        self.options = Options(self.client, "/shop/v2/options")
        self.values = Values(self.client, "/shop/v2/values")
        self.async_clients = AsyncClientsCollection(self.client, "/shop/v2/async-clients")
        self.client_creates = ClientCreates(self.client, "/shop/v2/client-creates")
        self.sheep = SheepCollection(self.client, "/shop/v2/sheep")
        self.messages = Messages(self.client, "/shop/v2/messages")

    def follow(self, **options: Any) -> Iterator[Service2PfelMessage]:
        """Every committed change, as it happens. Ignore types that you do not know."""
        return _cast("Iterator[Service2PfelMessage]", self.client.follow(**options))

    def close(self) -> None:
        self.client.close()

    def __enter__(self) -> Service2Pfel:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


class AsyncEverythings:
    """The operations on `everythings`."""

    def __init__(self, client: AsyncClient, path: str) -> None:
        self._client = client
        self._path = path

    def list(
        self,
        *,
        id: Filter[str] | None = None,
        created_at: Filter[str] | None = None,
        updated_at: Filter[str] | None = None,
        text: Filter[str] | None = None,
        whole: Filter[int] | None = None,
        real: Filter[float] | None = None,
        flag: Filter[bool] | None = None,
        moment: Filter[str] | None = None,
        day: Filter[str] | None = None,
        choice: Filter[EverythingChoice] | None = None,
        itself: Filter[str] | None = None,
        min_created_at: str | None = None,
        max_created_at: str | None = None,
        min_updated_at: str | None = None,
        max_updated_at: str | None = None,
        min_whole: int | None = None,
        max_whole: int | None = None,
        min_real: float | None = None,
        max_real: float | None = None,
        min_moment: str | None = None,
        max_moment: str | None = None,
        min_day: str | None = None,
        max_day: str | None = None,
        q: str | None = None,
        sort: EverythingSort | Sequence[EverythingSort] | None = None,
        limit: int | None = None,
        page: int | None = None,
        after: str | None = None,
        options: RequestOptions | None = None,
    ) -> AsyncList[Everything]:
        """All records that match, read page by page."""
        _sent = _query(
            {
                "id": id,
                "created_at": created_at,
                "updated_at": updated_at,
                "text": text,
                "whole": whole,
                "real": real,
                "flag": flag,
                "moment": moment,
                "day": day,
                "choice": choice,
                "itself": itself,
                "min_created_at": min_created_at,
                "max_created_at": max_created_at,
                "min_updated_at": min_updated_at,
                "max_updated_at": max_updated_at,
                "min_whole": min_whole,
                "max_whole": max_whole,
                "min_real": min_real,
                "max_real": max_real,
                "min_moment": min_moment,
                "max_moment": max_moment,
                "min_day": min_day,
                "max_day": max_day,
                "q": q,
                "sort": sort,
                "limit": limit,
                "page": page,
                "after": after,
            }
        )
        return _cast("AsyncList[Everything]", self._client.list(self._path, _sent, **(options or {})))

    async def get(self, id: str, *, options: RequestOptions | None = None) -> Everything:
        """One record."""
        return _cast("Everything", await self._client.get(self._path + path("/{}", id), **(options or {})))

    async def create(
        self, body: EverythingCreate, *, options: WriteOptions | None = None
    ) -> Everything:
        """Creates a record."""
        return _cast("Everything", await self._client.post(self._path, body, **(options or {})))

    async def replace(
        self, id: str, body: EverythingCreate, *, options: WriteOptions | None = None
    ) -> Everything:
        """Replaces a record: fields that are omitted get their default or None."""
        return _cast("Everything", await self._client.put(self._path + path("/{}", id), body, **(options or {})))

    async def update(
        self, id: str, changes: EverythingUpdate, *, options: WriteOptions | None = None
    ) -> Everything:
        """Changes some fields of a record."""
        return _cast("Everything", await self._client.patch(self._path + path("/{}", id), changes, **(options or {})))

    async def delete(self, id: str, *, options: WriteOptions | None = None) -> None:
        """Deletes a record."""
        await self._client.delete(self._path + path("/{}", id), **(options or {}))


class AsyncKeywords:
    """The operations on `keywords`."""

    def __init__(self, client: AsyncClient, path: str) -> None:
        self._client = client
        self._path = path

    def list(
        self,
        *,
        id: Filter[str] | None = None,
        created_at: Filter[str] | None = None,
        updated_at: Filter[str] | None = None,
        class_: Filter[str] | None = None,
        from_: Filter[str] | None = None,
        self_: Filter[str] | None = None,
        options_: Filter[str] | None = None,
        type: Filter[str] | None = None,
        match: Filter[int] | None = None,
        query: Filter[str] | None = None,
        status: Filter[KeywordStatus] | None = None,
        min_created_at: str | None = None,
        max_created_at: str | None = None,
        min_updated_at: str | None = None,
        max_updated_at: str | None = None,
        min_match: int | None = None,
        max_match: int | None = None,
        sort: KeywordSort | Sequence[KeywordSort] | None = None,
        limit: int | None = None,
        page: int | None = None,
        after: str | None = None,
        options: RequestOptions | None = None,
    ) -> AsyncList[Keyword]:
        """All records that match, read page by page."""
        _sent = _query(
            {
                "id": id,
                "created_at": created_at,
                "updated_at": updated_at,
                "class": class_,
                "from": from_,
                "self": self_,
                "options": options_,
                "type": type,
                "match": match,
                "query": query,
                "status": status,
                "min_created_at": min_created_at,
                "max_created_at": max_created_at,
                "min_updated_at": min_updated_at,
                "max_updated_at": max_updated_at,
                "min_match": min_match,
                "max_match": max_match,
                "sort": sort,
                "limit": limit,
                "page": page,
                "after": after,
            }
        )
        return _cast("AsyncList[Keyword]", self._client.list(self._path, _sent, **(options or {})))

    async def get(self, id: str, *, options: RequestOptions | None = None) -> Keyword:
        """One record."""
        return _cast("Keyword", await self._client.get(self._path + path("/{}", id), **(options or {})))

    async def create(self, body: KeywordCreate, *, options: WriteOptions | None = None) -> Keyword:
        """Creates a record."""
        return _cast("Keyword", await self._client.post(self._path, body, **(options or {})))

    async def replace(
        self, id: str, body: KeywordCreate, *, options: WriteOptions | None = None
    ) -> Keyword:
        """Replaces a record: fields that are omitted get their default or None."""
        return _cast("Keyword", await self._client.put(self._path + path("/{}", id), body, **(options or {})))

    async def update(
        self, id: str, changes: KeywordUpdate, *, options: WriteOptions | None = None
    ) -> Keyword:
        """Changes some fields of a record."""
        return _cast("Keyword", await self._client.patch(self._path + path("/{}", id), changes, **(options or {})))

    async def delete(self, id: str, *, options: WriteOptions | None = None) -> None:
        """Deletes a record."""
        await self._client.delete(self._path + path("/{}", id), **(options or {}))

    async def delete_(self, id: str, *, options: WriteOptions | None = None) -> Keyword:
        """Runs the action `delete`."""
        return _cast("Keyword", await self._client.post(self._path + path("/{}/delete", id), None, **(options or {})))

    async def list_(self, id: str, *, options: WriteOptions | None = None) -> Keyword:
        """Runs the action `list`."""
        return _cast("Keyword", await self._client.post(self._path + path("/{}/list", id), None, **(options or {})))

    async def str_(
        self, id: str, params: KeywordStrParams | None = None, *, options: WriteOptions | None = None
    ) -> Keyword:
        """Runs the action `str`."""
        return _cast("Keyword", await self._client.post(self._path + path("/{}/str", id), params or {}, **(options or {})))

    async def dict_(self, id: str, *, options: WriteOptions | None = None) -> Keyword:
        """Runs the action `dict`."""
        return _cast("Keyword", await self._client.post(self._path + path("/{}/dict", id), None, **(options or {})))

    async def constructor(self, id: str, *, options: WriteOptions | None = None) -> Keyword:
        """Runs the action `constructor`."""
        return _cast("Keyword", await self._client.post(self._path + path("/{}/constructor", id), None, **(options or {})))

    async def then(self, id: str, *, options: WriteOptions | None = None) -> Keyword:
        """Runs the action `then`."""
        return _cast("Keyword", await self._client.post(self._path + path("/{}/then", id), None, **(options or {})))

    async def import_(
        self, id: str, params: KeywordImportParams, *, options: WriteOptions | None = None
    ) -> Keyword:
        """Runs the action `import`."""
        return _cast("Keyword", await self._client.post(self._path + path("/{}/import", id), params, **(options or {})))

    async def mark_as_read(
        self, id: str, params: KeywordMarkAsReadParams | None = None, *, options: WriteOptions | None = None
    ) -> Keyword:
        """Runs the action `mark-as-read`."""
        return _cast("Keyword", await self._client.post(self._path + path("/{}/mark-as-read", id), params or {}, **(options or {})))


class AsyncClients:
    """The operations on `clients`."""

    def __init__(self, client: AsyncClient, path: str) -> None:
        self._client = client
        self._path = path

    def list(
        self,
        *,
        id: Filter[str] | None = None,
        created_at: Filter[str] | None = None,
        updated_at: Filter[str] | None = None,
        promise: Filter[str] | None = None,
        min_created_at: str | None = None,
        max_created_at: str | None = None,
        min_updated_at: str | None = None,
        max_updated_at: str | None = None,
        sort: ClientRecordSort | Sequence[ClientRecordSort] | None = None,
        limit: int | None = None,
        page: int | None = None,
        after: str | None = None,
        options: RequestOptions | None = None,
    ) -> AsyncList[ClientRecord]:
        """All records that match, read page by page."""
        _sent = _query(
            {
                "id": id,
                "created_at": created_at,
                "updated_at": updated_at,
                "promise": promise,
                "min_created_at": min_created_at,
                "max_created_at": max_created_at,
                "min_updated_at": min_updated_at,
                "max_updated_at": max_updated_at,
                "sort": sort,
                "limit": limit,
                "page": page,
                "after": after,
            }
        )
        return _cast("AsyncList[ClientRecord]", self._client.list(self._path, _sent, **(options or {})))

    async def get(self, id: str, *, options: RequestOptions | None = None) -> ClientRecord:
        """One record."""
        return _cast("ClientRecord", await self._client.get(self._path + path("/{}", id), **(options or {})))

    def promises(self, id: str) -> AsyncPromises:
        """The `promises` of one record."""
        return AsyncPromises(self._client, self._path + path("/{}/promises", id))


class AsyncPost:
    """The operations on `post`."""

    def __init__(self, client: AsyncClient, path: str) -> None:
        self._client = client
        self._path = path

    def list(
        self,
        *,
        id: Filter[str] | None = None,
        created_at: Filter[str] | None = None,
        updated_at: Filter[str] | None = None,
        min_created_at: str | None = None,
        max_created_at: str | None = None,
        min_updated_at: str | None = None,
        max_updated_at: str | None = None,
        sort: RecordSort | Sequence[RecordSort] | None = None,
        limit: int | None = None,
        page: int | None = None,
        after: str | None = None,
        options: RequestOptions | None = None,
    ) -> AsyncList[Record]:
        """All records that match, read page by page."""
        _sent = _query(
            {
                "id": id,
                "created_at": created_at,
                "updated_at": updated_at,
                "min_created_at": min_created_at,
                "max_created_at": max_created_at,
                "min_updated_at": min_updated_at,
                "max_updated_at": max_updated_at,
                "sort": sort,
                "limit": limit,
                "page": page,
                "after": after,
            }
        )
        return _cast("AsyncList[Record]", self._client.list(self._path, _sent, **(options or {})))

    async def get(self, id: str, *, options: RequestOptions | None = None) -> Record:
        """One record."""
        return _cast("Record", await self._client.get(self._path + path("/{}", id), **(options or {})))


class AsyncStrings:
    """The operations on `strings`."""

    def __init__(self, client: AsyncClient, path: str) -> None:
        self._client = client
        self._path = path

    def list(
        self,
        *,
        id: Filter[str] | None = None,
        created_at: Filter[str] | None = None,
        updated_at: Filter[str] | None = None,
        min_created_at: str | None = None,
        max_created_at: str | None = None,
        min_updated_at: str | None = None,
        max_updated_at: str | None = None,
        sort: StringSort | Sequence[StringSort] | None = None,
        limit: int | None = None,
        page: int | None = None,
        after: str | None = None,
        options: RequestOptions | None = None,
    ) -> AsyncList[String]:
        """All records that match, read page by page."""
        _sent = _query(
            {
                "id": id,
                "created_at": created_at,
                "updated_at": updated_at,
                "min_created_at": min_created_at,
                "max_created_at": max_created_at,
                "min_updated_at": min_updated_at,
                "max_updated_at": max_updated_at,
                "sort": sort,
                "limit": limit,
                "page": page,
                "after": after,
            }
        )
        return _cast("AsyncList[String]", self._client.list(self._path, _sent, **(options or {})))

    async def get(self, id: str, *, options: RequestOptions | None = None) -> String:
        """One record."""
        return _cast("String", await self._client.get(self._path + path("/{}", id), **(options or {})))


class AsyncOptions:
    """The operations on `options`."""

    def __init__(self, client: AsyncClient, path: str) -> None:
        self._client = client
        self._path = path

    def list(
        self,
        *,
        id: Filter[str] | None = None,
        created_at: Filter[str] | None = None,
        updated_at: Filter[str] | None = None,
        min_created_at: str | None = None,
        max_created_at: str | None = None,
        min_updated_at: str | None = None,
        max_updated_at: str | None = None,
        sort: OptionSort | Sequence[OptionSort] | None = None,
        limit: int | None = None,
        page: int | None = None,
        after: str | None = None,
        options: RequestOptions | None = None,
    ) -> AsyncList[Option]:
        """All records that match, read page by page."""
        _sent = _query(
            {
                "id": id,
                "created_at": created_at,
                "updated_at": updated_at,
                "min_created_at": min_created_at,
                "max_created_at": max_created_at,
                "min_updated_at": min_updated_at,
                "max_updated_at": max_updated_at,
                "sort": sort,
                "limit": limit,
                "page": page,
                "after": after,
            }
        )
        return _cast("AsyncList[Option]", self._client.list(self._path, _sent, **(options or {})))

    async def get(self, id: str, *, options: RequestOptions | None = None) -> Option:
        """One record."""
        return _cast("Option", await self._client.get(self._path + path("/{}", id), **(options or {})))


class AsyncValues:
    """The operations on `values`."""

    def __init__(self, client: AsyncClient, path: str) -> None:
        self._client = client
        self._path = path

    def list(
        self,
        *,
        id: Filter[str] | None = None,
        created_at: Filter[str] | None = None,
        updated_at: Filter[str] | None = None,
        min_created_at: str | None = None,
        max_created_at: str | None = None,
        min_updated_at: str | None = None,
        max_updated_at: str | None = None,
        sort: ValueSort | Sequence[ValueSort] | None = None,
        limit: int | None = None,
        page: int | None = None,
        after: str | None = None,
        options: RequestOptions | None = None,
    ) -> AsyncList[Value]:
        """All records that match, read page by page."""
        _sent = _query(
            {
                "id": id,
                "created_at": created_at,
                "updated_at": updated_at,
                "min_created_at": min_created_at,
                "max_created_at": max_created_at,
                "min_updated_at": min_updated_at,
                "max_updated_at": max_updated_at,
                "sort": sort,
                "limit": limit,
                "page": page,
                "after": after,
            }
        )
        return _cast("AsyncList[Value]", self._client.list(self._path, _sent, **(options or {})))

    async def get(self, id: str, *, options: RequestOptions | None = None) -> Value:
        """One record."""
        return _cast("Value", await self._client.get(self._path + path("/{}", id), **(options or {})))


class AsyncAsyncClientsCollection:
    """The operations on `async-clients`."""

    def __init__(self, client: AsyncClient, path: str) -> None:
        self._client = client
        self._path = path

    def list(
        self,
        *,
        id: Filter[str] | None = None,
        created_at: Filter[str] | None = None,
        updated_at: Filter[str] | None = None,
        min_created_at: str | None = None,
        max_created_at: str | None = None,
        min_updated_at: str | None = None,
        max_updated_at: str | None = None,
        sort: AsyncClientRecordSort | Sequence[AsyncClientRecordSort] | None = None,
        limit: int | None = None,
        page: int | None = None,
        after: str | None = None,
        options: RequestOptions | None = None,
    ) -> AsyncList[AsyncClientRecord]:
        """All records that match, read page by page."""
        _sent = _query(
            {
                "id": id,
                "created_at": created_at,
                "updated_at": updated_at,
                "min_created_at": min_created_at,
                "max_created_at": max_created_at,
                "min_updated_at": min_updated_at,
                "max_updated_at": max_updated_at,
                "sort": sort,
                "limit": limit,
                "page": page,
                "after": after,
            }
        )
        return _cast("AsyncList[AsyncClientRecord]", self._client.list(self._path, _sent, **(options or {})))

    async def get(self, id: str, *, options: RequestOptions | None = None) -> AsyncClientRecord:
        """One record."""
        return _cast("AsyncClientRecord", await self._client.get(self._path + path("/{}", id), **(options or {})))


class AsyncClientCreates:
    """The operations on `client-creates`."""

    def __init__(self, client: AsyncClient, path: str) -> None:
        self._client = client
        self._path = path

    def list(
        self,
        *,
        id: Filter[str] | None = None,
        created_at: Filter[str] | None = None,
        updated_at: Filter[str] | None = None,
        min_created_at: str | None = None,
        max_created_at: str | None = None,
        min_updated_at: str | None = None,
        max_updated_at: str | None = None,
        sort: ClientCreateSort | Sequence[ClientCreateSort] | None = None,
        limit: int | None = None,
        page: int | None = None,
        after: str | None = None,
        options: RequestOptions | None = None,
    ) -> AsyncList[ClientCreate]:
        """All records that match, read page by page."""
        _sent = _query(
            {
                "id": id,
                "created_at": created_at,
                "updated_at": updated_at,
                "min_created_at": min_created_at,
                "max_created_at": max_created_at,
                "min_updated_at": min_updated_at,
                "max_updated_at": max_updated_at,
                "sort": sort,
                "limit": limit,
                "page": page,
                "after": after,
            }
        )
        return _cast("AsyncList[ClientCreate]", self._client.list(self._path, _sent, **(options or {})))

    async def get(self, id: str, *, options: RequestOptions | None = None) -> ClientCreate:
        """One record."""
        return _cast("ClientCreate", await self._client.get(self._path + path("/{}", id), **(options or {})))


class AsyncSheepCollection:
    """The operations on `sheep`."""

    def __init__(self, client: AsyncClient, path: str) -> None:
        self._client = client
        self._path = path

    def list(
        self,
        *,
        id: Filter[str] | None = None,
        created_at: Filter[str] | None = None,
        updated_at: Filter[str] | None = None,
        min_created_at: str | None = None,
        max_created_at: str | None = None,
        min_updated_at: str | None = None,
        max_updated_at: str | None = None,
        sort: SheepSort | Sequence[SheepSort] | None = None,
        limit: int | None = None,
        page: int | None = None,
        after: str | None = None,
        options: RequestOptions | None = None,
    ) -> AsyncList[Sheep]:
        """All records that match, read page by page."""
        _sent = _query(
            {
                "id": id,
                "created_at": created_at,
                "updated_at": updated_at,
                "min_created_at": min_created_at,
                "max_created_at": max_created_at,
                "min_updated_at": min_updated_at,
                "max_updated_at": max_updated_at,
                "sort": sort,
                "limit": limit,
                "page": page,
                "after": after,
            }
        )
        return _cast("AsyncList[Sheep]", self._client.list(self._path, _sent, **(options or {})))

    async def get(self, id: str, *, options: RequestOptions | None = None) -> Sheep:
        """One record."""
        return _cast("Sheep", await self._client.get(self._path + path("/{}", id), **(options or {})))


class AsyncMessages:
    """The operations on `messages`."""

    def __init__(self, client: AsyncClient, path: str) -> None:
        self._client = client
        self._path = path

    def list(
        self,
        *,
        id: Filter[int] | None = None,
        created_at: Filter[str] | None = None,
        updated_at: Filter[str] | None = None,
        min_id: int | None = None,
        max_id: int | None = None,
        min_created_at: str | None = None,
        max_created_at: str | None = None,
        min_updated_at: str | None = None,
        max_updated_at: str | None = None,
        sort: MessageSort | Sequence[MessageSort] | None = None,
        limit: int | None = None,
        page: int | None = None,
        after: str | None = None,
        options: RequestOptions | None = None,
    ) -> AsyncList[Message]:
        """All records that match, read page by page."""
        _sent = _query(
            {
                "id": id,
                "created_at": created_at,
                "updated_at": updated_at,
                "min_id": min_id,
                "max_id": max_id,
                "min_created_at": min_created_at,
                "max_created_at": max_created_at,
                "min_updated_at": min_updated_at,
                "max_updated_at": max_updated_at,
                "sort": sort,
                "limit": limit,
                "page": page,
                "after": after,
            }
        )
        return _cast("AsyncList[Message]", self._client.list(self._path, _sent, **(options or {})))

    async def create(self, body: MessageCreate, *, options: WriteOptions | None = None) -> Message:
        """Creates a record."""
        return _cast("Message", await self._client.post(self._path, body, **(options or {})))

    async def poll(
        self, *, since: int | str | None = None, wait: bool | None = None, limit: int | None = None, options: RequestOptions | None = None
    ) -> Sequence[Message]:
        """The records after a position, oldest first; with `wait`, as soon as there are some."""
        return _cast("Sequence[Message]", await self._client.get("/api/messages", _query({"since": since, "wait": wait, "limit": limit}), **(options or {})))


class AsyncPromises:
    """The operations on `promises`."""

    def __init__(self, client: AsyncClient, path: str) -> None:
        self._client = client
        self._path = path

    def list(
        self,
        *,
        id: Filter[str] | None = None,
        created_at: Filter[str] | None = None,
        updated_at: Filter[str] | None = None,
        client: Filter[str] | None = None,
        min_created_at: str | None = None,
        max_created_at: str | None = None,
        min_updated_at: str | None = None,
        max_updated_at: str | None = None,
        sort: PromiseSort | Sequence[PromiseSort] | None = None,
        limit: int | None = None,
        page: int | None = None,
        after: str | None = None,
        options: RequestOptions | None = None,
    ) -> AsyncList[Promise]:
        """All records that match, read page by page."""
        _sent = _query(
            {
                "id": id,
                "created_at": created_at,
                "updated_at": updated_at,
                "client": client,
                "min_created_at": min_created_at,
                "max_created_at": max_created_at,
                "min_updated_at": min_updated_at,
                "max_updated_at": max_updated_at,
                "sort": sort,
                "limit": limit,
                "page": page,
                "after": after,
            }
        )
        return _cast("AsyncList[Promise]", self._client.list(self._path, _sent, **(options or {})))

    async def get(self, id: str, *, options: RequestOptions | None = None) -> Promise:
        """One record."""
        return _cast("Promise", await self._client.get(self._path + path("/{}", id), **(options or {})))

    def follow(self, id: str) -> AsyncFollow:
        """The `follow` of one record."""
        return AsyncFollow(self._client, self._path + path("/{}/follow", id))


class AsyncFollow:
    """The operations on `follow`."""

    def __init__(self, client: AsyncClient, path: str) -> None:
        self._client = client
        self._path = path

    def list(
        self,
        *,
        id: Filter[str] | None = None,
        created_at: Filter[str] | None = None,
        updated_at: Filter[str] | None = None,
        promise: Filter[str] | None = None,
        min_created_at: str | None = None,
        max_created_at: str | None = None,
        min_updated_at: str | None = None,
        max_updated_at: str | None = None,
        sort: NoneRecordSort | Sequence[NoneRecordSort] | None = None,
        limit: int | None = None,
        page: int | None = None,
        after: str | None = None,
        options: RequestOptions | None = None,
    ) -> AsyncList[NoneRecord]:
        """All records that match, read page by page."""
        _sent = _query(
            {
                "id": id,
                "created_at": created_at,
                "updated_at": updated_at,
                "promise": promise,
                "min_created_at": min_created_at,
                "max_created_at": max_created_at,
                "min_updated_at": min_updated_at,
                "max_updated_at": max_updated_at,
                "sort": sort,
                "limit": limit,
                "page": page,
                "after": after,
            }
        )
        return _cast("AsyncList[NoneRecord]", self._client.list(self._path, _sent, **(options or {})))

    async def get(self, id: str, *, options: RequestOptions | None = None) -> NoneRecord:
        """One record."""
        return _cast("NoneRecord", await self._client.get(self._path + path("/{}", id), **(options or {})))


class AsyncService2Pfel:
    """The client; `client` sends requests that have no method here."""

    def __init__(self, url: str, key: Any = None, **options: Any) -> None:
        options.setdefault("version", "2026-01-01")
        self.client = AsyncClient(url, key, **options)
        self.everythings = AsyncEverythings(self.client, "/shop/v2/everythings")
        self.keywords = AsyncKeywords(self.client, "/shop/v2/keywords")
        self.clients = AsyncClients(self.client, "/shop/v2/clients")
        self.post = AsyncPost(self.client, "/shop/v2/post")
        self.strings = AsyncStrings(self.client, "/shop/v2/strings")
        self.options = AsyncOptions(self.client, "/shop/v2/options")
        self.values = AsyncValues(self.client, "/shop/v2/values")
        self.async_clients = AsyncAsyncClientsCollection(self.client, "/shop/v2/async-clients")
        self.client_creates = AsyncClientCreates(self.client, "/shop/v2/client-creates")
        self.sheep = AsyncSheepCollection(self.client, "/shop/v2/sheep")
        self.messages = AsyncMessages(self.client, "/shop/v2/messages")

    def follow(self, **options: Any) -> AsyncIterator[Service2PfelMessage]:
        """Every committed change, as it happens. Ignore types that you do not know."""
        return _cast("AsyncIterator[Service2PfelMessage]", self.client.follow(**options))

    async def close(self) -> None:
        await self.client.close()

    async def __aenter__(self) -> AsyncService2Pfel:
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()


def _query(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that were given. The client sends None as `null`."""
    return {name: _value(value) for name, value in parameters.items() if value is not None}


def _value(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_value(one) for one in value]
    return None if value is NULL else value
