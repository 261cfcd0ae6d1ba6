# Made by `restive generate python` for the service bookshop, version 2026-11-01. Do not edit:
# generate it again when the schema changes.

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


BookSort = Literal[
    "created_at",
    "-created_at",
    "updated_at",
    "-updated_at",
    "title",
    "-title",
    "author",
    "-author",
    "price",
    "-price",
]


class Book(TypedDict):
    """What the shop sells."""

    id: str
    object: Literal["book"]
    title: str
    author: str
    # In the shop's currency.
    price: float | None
    # ISBN-10 or ISBN-13, with or without hyphens.
    isbn: str | None
    created_at: str
    updated_at: str


class _BookCreateRequired(TypedDict):
    title: str
    author: str


class _BookCreateOptional(TypedDict, total=False):
    # In the shop's currency.
    price: float | None
    # ISBN-10 or ISBN-13, with or without hyphens.
    isbn: str | None


class BookCreate(_BookCreateRequired, _BookCreateOptional):
    """A new book."""


class BookUpdate(TypedDict, total=False):
    """The fields to change; None clears a field."""

    title: str
    author: str
    # In the shop's currency.
    price: float | None
    # ISBN-10 or ISBN-13, with or without hyphens.
    isbn: str | None


OrderStatus = Literal["created", "paid", "shipped", "cancelled"]


OrderSort = Literal[
    "created_at",
    "-created_at",
    "updated_at",
    "-updated_at",
    "quantity",
    "-quantity",
]


class Order(TypedDict):
    """A customer's order of a book."""

    id: str
    object: Literal["order"]
    # The ordered book.
    book: str
    quantity: int | None
    # Set by the action `cancel`.
    cancel_reason: str | None
    # The state; changed by actions.
    status: OrderStatus
    created_at: str
    updated_at: str


class _OrderCreateRequired(TypedDict):
    # The ordered book.
    book: str


class _OrderCreateOptional(TypedDict, total=False):
    quantity: int | None


class OrderCreate(_OrderCreateRequired, _OrderCreateOptional):
    """A new order."""


class OrderUpdate(TypedDict, total=False):
    """The fields to change; None clears a field."""

    # The ordered book.
    book: str
    quantity: int | None


class OrderCancelParams(TypedDict, total=False):
    """Parameters of `cancel`."""

    reason: str | None


PaymentIntentStatus = Literal["requires_payment_method", "processing", "succeeded", "canceled"]


PaymentIntentCancelReason = Literal["duplicate", "fraudulent", "requested_by_customer", "abandoned"]


PaymentIntentSort = Literal[
    "created_at",
    "-created_at",
    "updated_at",
    "-updated_at",
    "amount",
    "-amount",
]


class PaymentIntent(TypedDict):
    """A payment in progress."""

    id: str
    object: Literal["payment_intent"]
    # In the smallest unit of the currency.
    amount: int
    # ISO 4217 code in lower case.
    currency: str
    # pm_card_visa succeeds, pm_card_declined does not.
    payment_method: str | None
    last_payment_error: dict[str, Any] | None
    cancellation_reason: str | None
    # The state; changed by actions.
    status: PaymentIntentStatus
    created_at: str
    updated_at: str


class _PaymentIntentCreateRequired(TypedDict):
    # In the smallest unit of the currency.
    amount: int
    # ISO 4217 code in lower case.
    currency: str


class _PaymentIntentCreateOptional(TypedDict, total=False):
    # pm_card_visa succeeds, pm_card_declined does not.
    payment_method: str | None


class PaymentIntentCreate(_PaymentIntentCreateRequired, _PaymentIntentCreateOptional):
    """A new payment intent."""


class PaymentIntentUpdate(TypedDict, total=False):
    """The fields to change; None clears a field."""

    # In the smallest unit of the currency.
    amount: int
    # ISO 4217 code in lower case.
    currency: str
    # pm_card_visa succeeds, pm_card_declined does not.
    payment_method: str | None


class PaymentIntentConfirmParams(TypedDict, total=False):
    """Parameters of `confirm`."""

    payment_method: str | None


class PaymentIntentCancelParams(TypedDict, total=False):
    """Parameters of `cancel`."""

    reason: PaymentIntentCancelReason | None


MessageSort = Literal["created_at", "-created_at", "updated_at", "-updated_at"]


# A chat that can be polled, streamed and written to.
Message = TypedDict(
    "Message",
    {
        "id": 'int',
        "object": 'Literal["message"]',
        "from": 'str | None',
        "text": 'str',
        "created_at": 'str',
        "updated_at": 'str',
    },
)


class _MessageCreateRequired(TypedDict):
    text: str


_MessageCreateOptional = TypedDict(
    "_MessageCreateOptional",
    {
        "from": 'str | None',
    },
    total=False,
)


class MessageCreate(_MessageCreateRequired, _MessageCreateOptional):
    """A new message."""


ReviewSort = Literal["created_at", "-created_at", "updated_at", "-updated_at", "rating", "-rating"]


class Review(TypedDict):
    """What readers say about a book."""

    id: str
    object: Literal["review"]
    # The book this belongs to, from the path.
    book: str
    rating: int
    text: str | None
    created_at: str
    updated_at: str


class _ReviewCreateRequired(TypedDict):
    rating: int


class _ReviewCreateOptional(TypedDict, total=False):
    text: str | None


class ReviewCreate(_ReviewCreateRequired, _ReviewCreateOptional):
    """A new review."""


class ReviewUpdate(TypedDict, total=False):
    """The fields to change; None clears a field."""

    rating: int
    text: str | None


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


class _BookData(TypedDict):
    """If the record was erased, only `id`, `object` and `erased` are in `object`."""

    object: Book


class _BookChange(_BookData, total=False):
    # Old values of the fields that changed.
    previous_attributes: dict[str, Any]


class _OrderData(TypedDict):
    """If the record was erased, only `id`, `object` and `erased` are in `object`."""

    object: Order


class _OrderChange(_OrderData, total=False):
    # Old values of the fields that changed.
    previous_attributes: dict[str, Any]


class _PaymentIntentData(TypedDict):
    """If the record was erased, only `id`, `object` and `erased` are in `object`."""

    object: PaymentIntent


class _PaymentIntentChange(_PaymentIntentData, total=False):
    # Old values of the fields that changed.
    previous_attributes: dict[str, Any]


class _MessageData(TypedDict):
    """If the record was erased, only `id`, `object` and `erased` are in `object`."""

    object: Message


class _MessageChange(_MessageData, total=False):
    # Old values of the fields that changed.
    previous_attributes: dict[str, Any]


class _ReviewData(TypedDict):
    """If the record was erased, only `id`, `object` and `erased` are in `object`."""

    object: Review


class _ReviewChange(_ReviewData, total=False):
    # Old values of the fields that changed.
    previous_attributes: dict[str, Any]


class BookCreatedEvent(_Envelope):
    """The event `book.created`."""

    type: Literal["book.created"]
    data: _BookData


class BookDeletedEvent(_Envelope):
    """The event `book.deleted`."""

    type: Literal["book.deleted"]
    data: _BookData


class BookUpdatedEvent(_Envelope):
    """The event `book.updated`."""

    type: Literal["book.updated"]
    data: _BookChange


class MessageCreatedEvent(_Envelope):
    """The event `message.created`."""

    type: Literal["message.created"]
    data: _MessageData


class OrderCancelledEvent(_Envelope):
    """The event `order.cancelled`."""

    type: Literal["order.cancelled"]
    data: _OrderChange


class OrderCreatedEvent(_Envelope):
    """The event `order.created`."""

    type: Literal["order.created"]
    data: _OrderData


class OrderDeletedEvent(_Envelope):
    """The event `order.deleted`."""

    type: Literal["order.deleted"]
    data: _OrderData


class OrderPaidEvent(_Envelope):
    """The event `order.paid`."""

    type: Literal["order.paid"]
    data: _OrderChange


class OrderShippedEvent(_Envelope):
    """The event `order.shipped`."""

    type: Literal["order.shipped"]
    data: _OrderChange


class OrderUpdatedEvent(_Envelope):
    """The event `order.updated`."""

    type: Literal["order.updated"]
    data: _OrderChange


class PaymentIntentCanceledEvent(_Envelope):
    """The event `payment_intent.canceled`."""

    type: Literal["payment_intent.canceled"]
    data: _PaymentIntentChange


class PaymentIntentCreatedEvent(_Envelope):
    """The event `payment_intent.created`."""

    type: Literal["payment_intent.created"]
    data: _PaymentIntentData


class PaymentIntentDeletedEvent(_Envelope):
    """The event `payment_intent.deleted`."""

    type: Literal["payment_intent.deleted"]
    data: _PaymentIntentData


class PaymentIntentPaymentFailedEvent(_Envelope):
    """The event `payment_intent.payment_failed`."""

    type: Literal["payment_intent.payment_failed"]
    data: _PaymentIntentChange


class PaymentIntentProcessingEvent(_Envelope):
    """The event `payment_intent.processing`."""

    type: Literal["payment_intent.processing"]
    data: _PaymentIntentChange


class PaymentIntentSucceededEvent(_Envelope):
    """The event `payment_intent.succeeded`."""

    type: Literal["payment_intent.succeeded"]
    data: _PaymentIntentChange


class PaymentIntentUpdatedEvent(_Envelope):
    """The event `payment_intent.updated`."""

    type: Literal["payment_intent.updated"]
    data: _PaymentIntentChange


class ReportReadyEvent(_Envelope):
    """A report was created."""

    type: Literal["report.ready"]
    data: _AnyChange


class ReviewCreatedEvent(_Envelope):
    """The event `review.created`."""

    type: Literal["review.created"]
    data: _ReviewData


class ReviewDeletedEvent(_Envelope):
    """The event `review.deleted`."""

    type: Literal["review.deleted"]
    data: _ReviewData


class ReviewUpdatedEvent(_Envelope):
    """The event `review.updated`."""

    type: Literal["review.updated"]
    data: _ReviewChange


# Every event, told apart by `type`: in webhooks and in the log.
BookshopEvent = Union[
    BookCreatedEvent,
    BookDeletedEvent,
    BookUpdatedEvent,
    MessageCreatedEvent,
    OrderCancelledEvent,
    OrderCreatedEvent,
    OrderDeletedEvent,
    OrderPaidEvent,
    OrderShippedEvent,
    OrderUpdatedEvent,
    PaymentIntentCanceledEvent,
    PaymentIntentCreatedEvent,
    PaymentIntentDeletedEvent,
    PaymentIntentPaymentFailedEvent,
    PaymentIntentProcessingEvent,
    PaymentIntentSucceededEvent,
    PaymentIntentUpdatedEvent,
    ReportReadyEvent,
    ReviewCreatedEvent,
    ReviewDeletedEvent,
    ReviewUpdatedEvent,
]

# Every message of the live channels that is in the log, told apart by `type`.
BookshopMessage = Union[
    LiveMessage[Literal["book.created"], BookCreatedEvent],
    LiveMessage[Literal["book.deleted"], BookDeletedEvent],
    LiveMessage[Literal["book.updated"], BookUpdatedEvent],
    LiveMessage[Literal["message"], Message],
    LiveMessage[Literal["order.cancelled"], OrderCancelledEvent],
    LiveMessage[Literal["order.created"], OrderCreatedEvent],
    LiveMessage[Literal["order.deleted"], OrderDeletedEvent],
    LiveMessage[Literal["order.paid"], OrderPaidEvent],
    LiveMessage[Literal["order.shipped"], OrderShippedEvent],
    LiveMessage[Literal["order.updated"], OrderUpdatedEvent],
    LiveMessage[Literal["payment_intent.canceled"], PaymentIntentCanceledEvent],
    LiveMessage[Literal["payment_intent.created"], PaymentIntentCreatedEvent],
    LiveMessage[Literal["payment_intent.deleted"], PaymentIntentDeletedEvent],
    LiveMessage[Literal["payment_intent.payment_failed"], PaymentIntentPaymentFailedEvent],
    LiveMessage[Literal["payment_intent.processing"], PaymentIntentProcessingEvent],
    LiveMessage[Literal["payment_intent.succeeded"], PaymentIntentSucceededEvent],
    LiveMessage[Literal["payment_intent.updated"], PaymentIntentUpdatedEvent],
    LiveMessage[Literal["report.ready"], ReportReadyEvent],
    LiveMessage[Literal["review.created"], ReviewCreatedEvent],
    LiveMessage[Literal["review.deleted"], ReviewDeletedEvent],
    LiveMessage[Literal["review.updated"], ReviewUpdatedEvent],
]


class Books:
    """The operations on `books`."""

    def __init__(self, client: Client, path: str) -> None:
        self._client = client
        self._path = path

    def list(
        self,
        *,
        id: Filter[str] | None = None,
        created_at: Filter[str] | None = None,
        updated_at: Filter[str] | None = None,
        title: Filter[str] | None = None,
        author: Filter[str] | None = None,
        price: Filter[float] | None = None,
        isbn: Filter[str] | None = None,
        min_created_at: str | None = None,
        max_created_at: str | None = None,
        min_updated_at: str | None = None,
        max_updated_at: str | None = None,
        min_price: float | None = None,
        max_price: float | None = None,
        q: str | None = None,
        sort: BookSort | Sequence[BookSort] | None = None,
        limit: int | None = None,
        page: int | None = None,
        after: str | None = None,
        options: RequestOptions | None = None,
    ) -> List[Book]:
        """All records that match, read page by page."""
        _sent = _query(
            {
                "id": id,
                "created_at": created_at,
                "updated_at": updated_at,
                "title": title,
                "author": author,
                "price": price,
                "isbn": isbn,
                "min_created_at": min_created_at,
                "max_created_at": max_created_at,
                "min_updated_at": min_updated_at,
                "max_updated_at": max_updated_at,
                "min_price": min_price,
                "max_price": max_price,
                "q": q,
                "sort": sort,
                "limit": limit,
                "page": page,
                "after": after,
            }
        )
        return _cast("List[Book]", self._client.list(self._path, _sent, **(options or {})))

    def get(self, id: str, *, options: RequestOptions | None = None) -> Book:
        """One record."""
        return _cast("Book", self._client.get(self._path + path("/{}", id), **(options or {})))

    def create(self, body: BookCreate, *, options: WriteOptions | None = None) -> Book:
        """Creates a record."""
        return _cast("Book", self._client.post(self._path, body, **(options or {})))

    def replace(self, id: str, body: BookCreate, *, options: WriteOptions | None = None) -> Book:
        """Replaces a record: fields that are omitted get their default or None."""
        return _cast("Book", self._client.put(self._path + path("/{}", id), body, **(options or {})))

    def update(self, id: str, changes: BookUpdate, *, options: WriteOptions | None = None) -> Book:
        """Changes some fields of a record."""
        return _cast("Book", self._client.patch(self._path + path("/{}", id), changes, **(options or {})))

    def delete(self, id: str, *, options: WriteOptions | None = None) -> None:
        """Deletes a record."""
        self._client.delete(self._path + path("/{}", id), **(options or {}))

    def reviews(self, id: str) -> Reviews:
        """The `reviews` of one record."""
        return Reviews(self._client, self._path + path("/{}/reviews", id))


class Orders:
    """The operations on `orders`."""

    def __init__(self, client: Client, path: str) -> None:
        self._client = client
        self._path = path

    def list(
        self,
        *,
        id: Filter[str] | None = None,
        created_at: Filter[str] | None = None,
        updated_at: Filter[str] | None = None,
        book: Filter[str] | None = None,
        quantity: Filter[int] | None = None,
        status: Filter[OrderStatus] | None = None,
        min_created_at: str | None = None,
        max_created_at: str | None = None,
        min_updated_at: str | None = None,
        max_updated_at: str | None = None,
        min_quantity: int | None = None,
        max_quantity: int | None = None,
        sort: OrderSort | Sequence[OrderSort] | None = None,
        limit: int | None = None,
        page: int | None = None,
        after: str | None = None,
        options: RequestOptions | None = None,
    ) -> List[Order]:
        """All records that match, read page by page."""
        _sent = _query(
            {
                "id": id,
                "created_at": created_at,
                "updated_at": updated_at,
                "book": book,
                "quantity": quantity,
                "status": status,
                "min_created_at": min_created_at,
                "max_created_at": max_created_at,
                "min_updated_at": min_updated_at,
                "max_updated_at": max_updated_at,
                "min_quantity": min_quantity,
                "max_quantity": max_quantity,
                "sort": sort,
                "limit": limit,
                "page": page,
                "after": after,
            }
        )
        return _cast("List[Order]", self._client.list(self._path, _sent, **(options or {})))

    def get(self, id: str, *, options: RequestOptions | None = None) -> Order:
        """One record."""
        return _cast("Order", self._client.get(self._path + path("/{}", id), **(options or {})))

    def create(self, body: OrderCreate, *, options: WriteOptions | None = None) -> Order:
        """Creates a record."""
        return _cast("Order", self._client.post(self._path, body, **(options or {})))

    def replace(self, id: str, body: OrderCreate, *, options: WriteOptions | None = None) -> Order:
        """Replaces a record: fields that are omitted get their default or None."""
        return _cast("Order", self._client.put(self._path + path("/{}", id), body, **(options or {})))

    def update(
        self, id: str, changes: OrderUpdate, *, options: WriteOptions | None = None
    ) -> Order:
        """Changes some fields of a record."""
        return _cast("Order", self._client.patch(self._path + path("/{}", id), changes, **(options or {})))

    def delete(self, id: str, *, options: WriteOptions | None = None) -> None:
        """Deletes a record."""
        self._client.delete(self._path + path("/{}", id), **(options or {}))

    def pay(self, id: str, *, options: WriteOptions | None = None) -> Order:
        """Runs the action `pay`."""
        return _cast("Order", self._client.post(self._path + path("/{}/pay", id), None, **(options or {})))

    def ship(self, id: str, *, options: WriteOptions | None = None) -> Order:
        """Runs the action `ship`."""
        return _cast("Order", self._client.post(self._path + path("/{}/ship", id), None, **(options or {})))

    def cancel(
        self, id: str, params: OrderCancelParams | None = None, *, options: WriteOptions | None = None
    ) -> Order:
        """Runs the action `cancel`."""
        return _cast("Order", self._client.post(self._path + path("/{}/cancel", id), params or {}, **(options or {})))


class PaymentIntents:
    """The operations on `payment-intents`."""

    def __init__(self, client: Client, path: str) -> None:
        self._client = client
        self._path = path

    def list(
        self,
        *,
        id: Filter[str] | None = None,
        created_at: Filter[str] | None = None,
        updated_at: Filter[str] | None = None,
        amount: Filter[int] | None = None,
        currency: Filter[str] | None = None,
        status: Filter[PaymentIntentStatus] | None = None,
        min_created_at: str | None = None,
        max_created_at: str | None = None,
        min_updated_at: str | None = None,
        max_updated_at: str | None = None,
        min_amount: int | None = None,
        max_amount: int | None = None,
        sort: PaymentIntentSort | Sequence[PaymentIntentSort] | None = None,
        limit: int | None = None,
        page: int | None = None,
        after: str | None = None,
        options: RequestOptions | None = None,
    ) -> List[PaymentIntent]:
        """All records that match, read page by page."""
        _sent = _query(
            {
                "id": id,
                "created_at": created_at,
                "updated_at": updated_at,
                "amount": amount,
                "currency": currency,
                "status": status,
                "min_created_at": min_created_at,
                "max_created_at": max_created_at,
                "min_updated_at": min_updated_at,
                "max_updated_at": max_updated_at,
                "min_amount": min_amount,
                "max_amount": max_amount,
                "sort": sort,
                "limit": limit,
                "page": page,
                "after": after,
            }
        )
        return _cast("List[PaymentIntent]", self._client.list(self._path, _sent, **(options or {})))

    def get(self, id: str, *, options: RequestOptions | None = None) -> PaymentIntent:
        """One record."""
        return _cast("PaymentIntent", self._client.get(self._path + path("/{}", id), **(options or {})))

    def create(
        self, body: PaymentIntentCreate, *, options: WriteOptions | None = None
    ) -> PaymentIntent:
        """Creates a record."""
        return _cast("PaymentIntent", self._client.post(self._path, body, **(options or {})))

    def replace(
        self, id: str, body: PaymentIntentCreate, *, options: WriteOptions | None = None
    ) -> PaymentIntent:
        """Replaces a record: fields that are omitted get their default or None."""
        return _cast("PaymentIntent", self._client.put(self._path + path("/{}", id), body, **(options or {})))

    def update(
        self, id: str, changes: PaymentIntentUpdate, *, options: WriteOptions | None = None
    ) -> PaymentIntent:
        """Changes some fields of a record."""
        return _cast("PaymentIntent", self._client.patch(self._path + path("/{}", id), changes, **(options or {})))

    def delete(self, id: str, *, options: WriteOptions | None = None) -> None:
        """Deletes a record."""
        self._client.delete(self._path + path("/{}", id), **(options or {}))

    def confirm(
        self, id: str, params: PaymentIntentConfirmParams | None = None, *, options: WriteOptions | None = None
    ) -> PaymentIntent:
        """Starts the payment, with the payment method of the record or the one sent along."""
        return _cast("PaymentIntent", self._client.post(self._path + path("/{}/confirm", id), params or {}, **(options or {})))

    def cancel(
        self, id: str, params: PaymentIntentCancelParams | None = None, *, options: WriteOptions | None = None
    ) -> PaymentIntent:
        """Runs the action `cancel`."""
        return _cast("PaymentIntent", self._client.post(self._path + path("/{}/cancel", id), params or {}, **(options or {})))


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
        from_: Filter[str] | None = None,
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
                "from": from_,
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

    def get(self, id: int, *, options: RequestOptions | None = None) -> Message:
        """One record."""
        return _cast("Message", self._client.get(self._path + path("/{}", id), **(options or {})))

    def create(self, body: MessageCreate, *, options: WriteOptions | None = None) -> Message:
        """Creates a record."""
        return _cast("Message", self._client.post(self._path, body, **(options or {})))

    def poll(
        self, *, since: int | str | None = None, wait: bool | None = None, limit: int | None = None, options: RequestOptions | None = None
    ) -> Sequence[Message]:
        """The records after a position, oldest first; with `wait`, as soon as there are some."""
        return _cast("Sequence[Message]", self._client.get("/api/messages", _query({"since": since, "wait": wait, "limit": limit}), **(options or {})))


class Reviews:
    """The operations on `reviews`."""

    def __init__(self, client: Client, path: str) -> None:
        self._client = client
        self._path = path

    def list(
        self,
        *,
        id: Filter[str] | None = None,
        created_at: Filter[str] | None = None,
        updated_at: Filter[str] | None = None,
        book: Filter[str] | None = None,
        rating: Filter[int] | None = None,
        min_created_at: str | None = None,
        max_created_at: str | None = None,
        min_updated_at: str | None = None,
        max_updated_at: str | None = None,
        min_rating: int | None = None,
        max_rating: int | None = None,
        q: str | None = None,
        sort: ReviewSort | Sequence[ReviewSort] | None = None,
        limit: int | None = None,
        page: int | None = None,
        after: str | None = None,
        options: RequestOptions | None = None,
    ) -> List[Review]:
        """All records that match, read page by page."""
        _sent = _query(
            {
                "id": id,
                "created_at": created_at,
                "updated_at": updated_at,
                "book": book,
                "rating": rating,
                "min_created_at": min_created_at,
                "max_created_at": max_created_at,
                "min_updated_at": min_updated_at,
                "max_updated_at": max_updated_at,
                "min_rating": min_rating,
                "max_rating": max_rating,
                "q": q,
                "sort": sort,
                "limit": limit,
                "page": page,
                "after": after,
            }
        )
        return _cast("List[Review]", self._client.list(self._path, _sent, **(options or {})))

    def get(self, id: str, *, options: RequestOptions | None = None) -> Review:
        """One record."""
        return _cast("Review", self._client.get(self._path + path("/{}", id), **(options or {})))

    def create(self, body: ReviewCreate, *, options: WriteOptions | None = None) -> Review:
        """Creates a record."""
        return _cast("Review", self._client.post(self._path, body, **(options or {})))

    def replace(
        self, id: str, body: ReviewCreate, *, options: WriteOptions | None = None
    ) -> Review:
        """Replaces a record: fields that are omitted get their default or None."""
        return _cast("Review", self._client.put(self._path + path("/{}", id), body, **(options or {})))

    def update(
        self, id: str, changes: ReviewUpdate, *, options: WriteOptions | None = None
    ) -> Review:
        """Changes some fields of a record."""
        return _cast("Review", self._client.patch(self._path + path("/{}", id), changes, **(options or {})))

    def delete(self, id: str, *, options: WriteOptions | None = None) -> None:
        """Deletes a record."""
        self._client.delete(self._path + path("/{}", id), **(options or {}))


class Bookshop:
    """The client; `client` sends requests that have no method here."""

    def __init__(self, url: str, key: Any = None, **options: Any) -> None:
        options.setdefault("version", "2026-11-01")
        self.client = Client(url, key, **options)
        self.books = Books(self.client, "/v1/books")
        self.orders = Orders(self.client, "/v1/orders")
        self.payment_intents = PaymentIntents(self.client, "/v1/payment-intents")
        self.messages = Messages(self.client, "/v1/messages")

    def follow(self, **options: Any) -> Iterator[BookshopMessage]:
        """Every committed change, as it happens. Ignore types that you do not know."""
        return _cast("Iterator[BookshopMessage]", self.client.follow(**options))

    def close(self) -> None:
        self.client.close()

    def __enter__(self) -> Bookshop:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


class AsyncBooks:
    """The operations on `books`."""

    def __init__(self, client: AsyncClient, path: str) -> None:
        self._client = client
        self._path = path

    def list(
        self,
        *,
        id: Filter[str] | None = None,
        created_at: Filter[str] | None = None,
        updated_at: Filter[str] | None = None,
        title: Filter[str] | None = None,
        author: Filter[str] | None = None,
        price: Filter[float] | None = None,
        isbn: Filter[str] | None = None,
        min_created_at: str | None = None,
        max_created_at: str | None = None,
        min_updated_at: str | None = None,
        max_updated_at: str | None = None,
        min_price: float | None = None,
        max_price: float | None = None,
        q: str | None = None,
        sort: BookSort | Sequence[BookSort] | None = None,
        limit: int | None = None,
        page: int | None = None,
        after: str | None = None,
        options: RequestOptions | None = None,
    ) -> AsyncList[Book]:
        """All records that match, read page by page."""
        _sent = _query(
            {
                "id": id,
                "created_at": created_at,
                "updated_at": updated_at,
                "title": title,
                "author": author,
                "price": price,
                "isbn": isbn,
                "min_created_at": min_created_at,
                "max_created_at": max_created_at,
                "min_updated_at": min_updated_at,
                "max_updated_at": max_updated_at,
                "min_price": min_price,
                "max_price": max_price,
                "q": q,
                "sort": sort,
                "limit": limit,
                "page": page,
                "after": after,
            }
        )
        return _cast("AsyncList[Book]", self._client.list(self._path, _sent, **(options or {})))

    async def get(self, id: str, *, options: RequestOptions | None = None) -> Book:
        """One record."""
        return _cast("Book", await self._client.get(self._path + path("/{}", id), **(options or {})))

    async def create(self, body: BookCreate, *, options: WriteOptions | None = None) -> Book:
        """Creates a record."""
        return _cast("Book", await self._client.post(self._path, body, **(options or {})))

    async def replace(
        self, id: str, body: BookCreate, *, options: WriteOptions | None = None
    ) -> Book:
        """Replaces a record: fields that are omitted get their default or None."""
        return _cast("Book", await self._client.put(self._path + path("/{}", id), body, **(options or {})))

    async def update(
        self, id: str, changes: BookUpdate, *, options: WriteOptions | None = None
    ) -> Book:
        """Changes some fields of a record."""
        return _cast("Book", await self._client.patch(self._path + path("/{}", id), changes, **(options or {})))

    async def delete(self, id: str, *, options: WriteOptions | None = None) -> None:
        """Deletes a record."""
        await self._client.delete(self._path + path("/{}", id), **(options or {}))

    def reviews(self, id: str) -> AsyncReviews:
        """The `reviews` of one record."""
        return AsyncReviews(self._client, self._path + path("/{}/reviews", id))


class AsyncOrders:
    """The operations on `orders`."""

    def __init__(self, client: AsyncClient, path: str) -> None:
        self._client = client
        self._path = path

    def list(
        self,
        *,
        id: Filter[str] | None = None,
        created_at: Filter[str] | None = None,
        updated_at: Filter[str] | None = None,
        book: Filter[str] | None = None,
        quantity: Filter[int] | None = None,
        status: Filter[OrderStatus] | None = None,
        min_created_at: str | None = None,
        max_created_at: str | None = None,
        min_updated_at: str | None = None,
        max_updated_at: str | None = None,
        min_quantity: int | None = None,
        max_quantity: int | None = None,
        sort: OrderSort | Sequence[OrderSort] | None = None,
        limit: int | None = None,
        page: int | None = None,
        after: str | None = None,
        options: RequestOptions | None = None,
    ) -> AsyncList[Order]:
        """All records that match, read page by page."""
        _sent = _query(
            {
                "id": id,
                "created_at": created_at,
                "updated_at": updated_at,
                "book": book,
                "quantity": quantity,
                "status": status,
                "min_created_at": min_created_at,
                "max_created_at": max_created_at,
                "min_updated_at": min_updated_at,
                "max_updated_at": max_updated_at,
                "min_quantity": min_quantity,
                "max_quantity": max_quantity,
                "sort": sort,
                "limit": limit,
                "page": page,
                "after": after,
            }
        )
        return _cast("AsyncList[Order]", self._client.list(self._path, _sent, **(options or {})))

    async def get(self, id: str, *, options: RequestOptions | None = None) -> Order:
        """One record."""
        return _cast("Order", await self._client.get(self._path + path("/{}", id), **(options or {})))

    async def create(self, body: OrderCreate, *, options: WriteOptions | None = None) -> Order:
        """Creates a record."""
        return _cast("Order", await self._client.post(self._path, body, **(options or {})))

    async def replace(
        self, id: str, body: OrderCreate, *, options: WriteOptions | None = None
    ) -> Order:
        """Replaces a record: fields that are omitted get their default or None."""
        return _cast("Order", await self._client.put(self._path + path("/{}", id), body, **(options or {})))

    async def update(
        self, id: str, changes: OrderUpdate, *, options: WriteOptions | None = None
    ) -> Order:
        """Changes some fields of a record."""
        return _cast("Order", await self._client.patch(self._path + path("/{}", id), changes, **(options or {})))

    async def delete(self, id: str, *, options: WriteOptions | None = None) -> None:
        """Deletes a record."""
        await self._client.delete(self._path + path("/{}", id), **(options or {}))

    async def pay(self, id: str, *, options: WriteOptions | None = None) -> Order:
        """Runs the action `pay`."""
        return _cast("Order", await self._client.post(self._path + path("/{}/pay", id), None, **(options or {})))

    async def ship(self, id: str, *, options: WriteOptions | None = None) -> Order:
        """Runs the action `ship`."""
        return _cast("Order", await self._client.post(self._path + path("/{}/ship", id), None, **(options or {})))

    async def cancel(
        self, id: str, params: OrderCancelParams | None = None, *, options: WriteOptions | None = None
    ) -> Order:
        """Runs the action `cancel`."""
        return _cast("Order", await self._client.post(self._path + path("/{}/cancel", id), params or {}, **(options or {})))


class AsyncPaymentIntents:
    """The operations on `payment-intents`."""

    def __init__(self, client: AsyncClient, path: str) -> None:
        self._client = client
        self._path = path

    def list(
        self,
        *,
        id: Filter[str] | None = None,
        created_at: Filter[str] | None = None,
        updated_at: Filter[str] | None = None,
        amount: Filter[int] | None = None,
        currency: Filter[str] | None = None,
        status: Filter[PaymentIntentStatus] | None = None,
        min_created_at: str | None = None,
        max_created_at: str | None = None,
        min_updated_at: str | None = None,
        max_updated_at: str | None = None,
        min_amount: int | None = None,
        max_amount: int | None = None,
        sort: PaymentIntentSort | Sequence[PaymentIntentSort] | None = None,
        limit: int | None = None,
        page: int | None = None,
        after: str | None = None,
        options: RequestOptions | None = None,
    ) -> AsyncList[PaymentIntent]:
        """All records that match, read page by page."""
        _sent = _query(
            {
                "id": id,
                "created_at": created_at,
                "updated_at": updated_at,
                "amount": amount,
                "currency": currency,
                "status": status,
                "min_created_at": min_created_at,
                "max_created_at": max_created_at,
                "min_updated_at": min_updated_at,
                "max_updated_at": max_updated_at,
                "min_amount": min_amount,
                "max_amount": max_amount,
                "sort": sort,
                "limit": limit,
                "page": page,
                "after": after,
            }
        )
        return _cast("AsyncList[PaymentIntent]", self._client.list(self._path, _sent, **(options or {})))

    async def get(self, id: str, *, options: RequestOptions | None = None) -> PaymentIntent:
        """One record."""
        return _cast("PaymentIntent", await self._client.get(self._path + path("/{}", id), **(options or {})))

    async def create(
        self, body: PaymentIntentCreate, *, options: WriteOptions | None = None
    ) -> PaymentIntent:
        """Creates a record."""
        return _cast("PaymentIntent", await self._client.post(self._path, body, **(options or {})))

    async def replace(
        self, id: str, body: PaymentIntentCreate, *, options: WriteOptions | None = None
    ) -> PaymentIntent:
        """Replaces a record: fields that are omitted get their default or None."""
        return _cast("PaymentIntent", await self._client.put(self._path + path("/{}", id), body, **(options or {})))

    async def update(
        self, id: str, changes: PaymentIntentUpdate, *, options: WriteOptions | None = None
    ) -> PaymentIntent:
        """Changes some fields of a record."""
        return _cast("PaymentIntent", await self._client.patch(self._path + path("/{}", id), changes, **(options or {})))

    async def delete(self, id: str, *, options: WriteOptions | None = None) -> None:
        """Deletes a record."""
        await self._client.delete(self._path + path("/{}", id), **(options or {}))

    async def confirm(
        self, id: str, params: PaymentIntentConfirmParams | None = None, *, options: WriteOptions | None = None
    ) -> PaymentIntent:
        """Starts the payment, with the payment method of the record or the one sent along."""
        return _cast("PaymentIntent", await self._client.post(self._path + path("/{}/confirm", id), params or {}, **(options or {})))

    async def cancel(
        self, id: str, params: PaymentIntentCancelParams | None = None, *, options: WriteOptions | None = None
    ) -> PaymentIntent:
        """Runs the action `cancel`."""
        return _cast("PaymentIntent", await self._client.post(self._path + path("/{}/cancel", id), params or {}, **(options or {})))


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
        from_: Filter[str] | None = None,
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
                "from": from_,
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

    async def get(self, id: int, *, options: RequestOptions | None = None) -> Message:
        """One record."""
        return _cast("Message", await self._client.get(self._path + path("/{}", id), **(options or {})))

    async def create(self, body: MessageCreate, *, options: WriteOptions | None = None) -> Message:
        """Creates a record."""
        return _cast("Message", await self._client.post(self._path, body, **(options or {})))

    async def poll(
        self, *, since: int | str | None = None, wait: bool | None = None, limit: int | None = None, options: RequestOptions | None = None
    ) -> Sequence[Message]:
        """The records after a position, oldest first; with `wait`, as soon as there are some."""
        return _cast("Sequence[Message]", await self._client.get("/api/messages", _query({"since": since, "wait": wait, "limit": limit}), **(options or {})))


class AsyncReviews:
    """The operations on `reviews`."""

    def __init__(self, client: AsyncClient, path: str) -> None:
        self._client = client
        self._path = path

    def list(
        self,
        *,
        id: Filter[str] | None = None,
        created_at: Filter[str] | None = None,
        updated_at: Filter[str] | None = None,
        book: Filter[str] | None = None,
        rating: Filter[int] | None = None,
        min_created_at: str | None = None,
        max_created_at: str | None = None,
        min_updated_at: str | None = None,
        max_updated_at: str | None = None,
        min_rating: int | None = None,
        max_rating: int | None = None,
        q: str | None = None,
        sort: ReviewSort | Sequence[ReviewSort] | None = None,
        limit: int | None = None,
        page: int | None = None,
        after: str | None = None,
        options: RequestOptions | None = None,
    ) -> AsyncList[Review]:
        """All records that match, read page by page."""
        _sent = _query(
            {
                "id": id,
                "created_at": created_at,
                "updated_at": updated_at,
                "book": book,
                "rating": rating,
                "min_created_at": min_created_at,
                "max_created_at": max_created_at,
                "min_updated_at": min_updated_at,
                "max_updated_at": max_updated_at,
                "min_rating": min_rating,
                "max_rating": max_rating,
                "q": q,
                "sort": sort,
                "limit": limit,
                "page": page,
                "after": after,
            }
        )
        return _cast("AsyncList[Review]", self._client.list(self._path, _sent, **(options or {})))

    async def get(self, id: str, *, options: RequestOptions | None = None) -> Review:
        """One record."""
        return _cast("Review", await self._client.get(self._path + path("/{}", id), **(options or {})))

    async def create(self, body: ReviewCreate, *, options: WriteOptions | None = None) -> Review:
        """Creates a record."""
        return _cast("Review", await self._client.post(self._path, body, **(options or {})))

    async def replace(
        self, id: str, body: ReviewCreate, *, options: WriteOptions | None = None
    ) -> Review:
        """Replaces a record: fields that are omitted get their default or None."""
        return _cast("Review", await self._client.put(self._path + path("/{}", id), body, **(options or {})))

    async def update(
        self, id: str, changes: ReviewUpdate, *, options: WriteOptions | None = None
    ) -> Review:
        """Changes some fields of a record."""
        return _cast("Review", await self._client.patch(self._path + path("/{}", id), changes, **(options or {})))

    async def delete(self, id: str, *, options: WriteOptions | None = None) -> None:
        """Deletes a record."""
        await self._client.delete(self._path + path("/{}", id), **(options or {}))


class AsyncBookshop:
    """The client; `client` sends requests that have no method here."""

    def __init__(self, url: str, key: Any = None, **options: Any) -> None:
        options.setdefault("version", "2026-11-01")
        self.client = AsyncClient(url, key, **options)
        self.books = AsyncBooks(self.client, "/v1/books")
        self.orders = AsyncOrders(self.client, "/v1/orders")
        self.payment_intents = AsyncPaymentIntents(self.client, "/v1/payment-intents")
        self.messages = AsyncMessages(self.client, "/v1/messages")

    def follow(self, **options: Any) -> AsyncIterator[BookshopMessage]:
        """Every committed change, as it happens. Ignore types that you do not know."""
        return _cast("AsyncIterator[BookshopMessage]", self.client.follow(**options))

    async def close(self) -> None:
        await self.client.close()

    async def __aenter__(self) -> AsyncBookshop:
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
