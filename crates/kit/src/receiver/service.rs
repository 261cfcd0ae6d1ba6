//! The receiver as a tower service and layer: reads the body up to the limit, and asks the server
//! how a request came. Works with axum, hyper and any other tower stack.

use std::convert::Infallible;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http::request::Parts;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use tower_layer::Layer;
use tower_service::Service;

use super::{Answer, Delivery, Receiver};

type PeerOf = Arc<dyn Fn(&Parts) -> Option<IpAddr> + Send + Sync>;

/// How a request came, which only the server knows.
#[derive(Clone)]
struct Source {
    peer: PeerOf,
    is_secure: Arc<dyn Fn(&Parts) -> bool + Send + Sync>,
}

/// A service that receives webhooks at every path.
#[derive(Clone)]
pub struct ReceiverService {
    receiver: Receiver,
    source: Source,
}

impl ReceiverService {
    /// Without further settings no request is known to be secure, and no address is known: set them
    /// if the receiver checks them.
    pub fn new(receiver: Receiver) -> Self {
        let source = Source { peer: Arc::new(|_| None), is_secure: Arc::new(|_| false) };
        Self { receiver, source }
    }

    /// Where the address of the client is found, for example in an extension of the request.
    pub fn peer(mut self, peer: impl Fn(&Parts) -> Option<IpAddr> + Send + Sync + 'static) -> Self {
        self.source.peer = Arc::new(peer);
        self
    }

    /// How a request over HTTPS is recognised, for example by a header of a trusted proxy.
    pub fn is_secure(mut self, is_secure: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.source.is_secure = Arc::new(is_secure);
        self
    }

    async fn answer<B>(self, request: Request<B>) -> Answer
    where
        B: Body,
    {
        let (parts, body) = request.into_parts();
        let delivery = Delivery {
            method: &parts.method,
            headers: &parts.headers,
            is_secure: (self.source.is_secure)(&parts),
            peer: (self.source.peer)(&parts),
        };
        if let Some(refusal) = self.receiver.refuse(delivery) {
            return refusal;
        }
        match read(body, self.receiver.body_limit()).await {
            Ok(body) => self.receiver.receive(delivery, body).await,
            Err(Unread::TooLarge) => self.receiver.too_large(),
            Err(Unread::Broken) => self.receiver.incomplete(),
        }
    }
}

enum Unread {
    TooLarge,
    Broken,
}

async fn read<B: Body>(body: B, limit: usize) -> Result<Bytes, Unread> {
    let mut body = std::pin::pin!(body);
    let mut bytes = BytesMut::new();
    while let Some(frame) = std::future::poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
        let frame = frame.map_err(|_| Unread::Broken)?;
        let Ok(mut data) = frame.into_data() else { continue };
        while bytes::Buf::has_remaining(&data) {
            let piece = bytes::Buf::chunk(&data);
            if bytes.len() + piece.len() > limit {
                return Err(Unread::TooLarge);
            }
            bytes.extend_from_slice(piece);
            let count = piece.len();
            bytes::Buf::advance(&mut data, count);
        }
    }
    Ok(bytes.freeze())
}

type Answering<R, E> = Pin<Box<dyn Future<Output = Result<R, E>> + Send>>;

impl<B> Service<Request<B>> for ReceiverService
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Send,
{
    type Response = Response<AnswerBody>;
    type Error = Infallible;
    type Future = Answering<Response<AnswerBody>, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let own = self.clone();
        Box::pin(async move { Ok(own.answer(request).await.into_response()) })
    }
}

impl std::fmt::Debug for ReceiverService {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.receiver.fmt(out)
    }
}

/// The body of a response: one piece.
#[derive(Debug, Default)]
pub struct AnswerBody(Option<Bytes>);

impl From<Bytes> for AnswerBody {
    fn from(bytes: Bytes) -> Self {
        Self(Some(bytes))
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}

/// Puts a receiver before another service: it gets the requests to one path, the other service gets
/// the rest.
#[derive(Clone, Debug)]
pub struct ReceiverLayer {
    service: ReceiverService,
    path: Arc<str>,
}

impl ReceiverLayer {
    pub fn new(path: &str, service: ReceiverService) -> Self {
        Self { service, path: path.into() }
    }
}

impl<S> Layer<S> for ReceiverLayer {
    type Service = WithReceiver<S>;

    fn layer(&self, inner: S) -> WithReceiver<S> {
        WithReceiver { layer: self.clone(), inner }
    }
}

/// A service behind a [`ReceiverLayer`].
#[derive(Clone, Debug)]
pub struct WithReceiver<S> {
    layer: ReceiverLayer,
    inner: S,
}

impl<S, B, R> Service<Request<B>> for WithReceiver<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Future: Send + 'static,
    S::Error: 'static,
    R: From<Bytes> + 'static,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Send,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Answering<Response<R>, S::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        if request.uri().path() != &*self.layer.path {
            return Box::pin(self.inner.call(request));
        }
        let service = self.layer.service.clone();
        Box::pin(async move { Ok(service.answer(request).await.into_response()) })
    }
}
