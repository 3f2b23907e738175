//! The admin listener: health for load balancers and supervisors, metrics for a scraper.
//!
//! | path | answers |
//! |---|---|
//! | `/health/live` | 200 as long as the process runs its event loop |
//! | `/health/ready` | 200 while clients are served; 503 when draining, or as below |
//! | `/metrics` | every metric, in the text format of Prometheus (`OpenMetrics`) |
//! | `/admin/v1/…` | what caches, tiers, origins and mirrors hold, and changes of it: `api` |
//!
//! A gateway is not ready while what a tier should have moved to its cold store is older than
//! allowed, nor while fewer members of a mirror answer than must have a write. Readiness does not
//! ask an origin, however many endpoints it has: cached objects are served while it is down, and a
//! blinking origin must not take every gateway out of its load balancer at once.
//!
//! Health and metrics are for whoever reaches them; who may use the API is `guard`'s. It listens on
//! loopback unless the config says otherwise. Plain hyper on the caller's runtime, apart from the
//! threads that serve clients, so that it answers when they are busy.

mod api;
mod caches;
mod guard;
mod jobs;
pub mod messages;
mod mirrors;
mod origins;
mod selection;
mod tiers;

use std::{
    collections::HashMap,
    convert::Infallible,
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use forebay_store::Body;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body::Body as HttpBody;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::{encoding::text::encode, registry::Registry};
use tokio::{net::TcpListener, sync::Semaphore, task::JoinHandle};

pub use api::{Api, needs_token};
pub use caches::{Cache, Caches};
pub use mirrors::Mirror;
pub use origins::Origin;
pub use tiers::{Log, Tier, Tiers};

/// What operators see of stores and layers, and change; clones share it.
#[derive(Debug, Clone)]
pub struct Operators {
    /// The caches among the layers.
    pub caches: Caches,
    /// The tiers among the layers, and the logs among the stores.
    pub tiers: Tiers,
    /// The S3 services among the stores, by name.
    pub origins: Vec<Origin>,
    /// The mirrors among the stores, by name.
    pub mirrors: Vec<Mirror>,
}

impl Operators {
    /// Has tiers move what is due and mirrors repair what their members lack, on this runtime.
    pub fn start(&self) -> Working {
        let repairers = self.mirrors.iter().map(|mirror| {
            let repairer = Arc::clone(&mirror.repairer);
            tokio::spawn(async move { repairer.run().await })
        });
        Working(self.tiers.start().chain(repairers).collect())
    }

    /// Ends that work, in so long at most: tiers as each is set, mirrors once what they are at is
    /// done.
    ///
    /// # Cancel safety
    /// A dropped future leaves in hot stores and journals what is still owed.
    pub async fn stop(&self, time_max: Duration) {
        self.tiers.stop(time_max).await;
        for mirror in &self.mirrors {
            match mirror.operator.stop(time_max).await {
                Ok(true) => {}
                Ok(false) => tracing::warn!(
                    mirror = mirror.name,
                    "not every member had everything in time; the next start goes on with it"
                ),
                Err(error) => {
                    tracing::warn!(mirror = mirror.name, %error, "mirror did not stop well");
                }
            }
        }
    }
}

/// Movers and repairers at work; they end when this is dropped.
#[derive(Debug)]
pub struct Working(Vec<JoinHandle<()>>);

impl Drop for Working {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

/// Connections at once: a few scrapers and probes, so that a leak in one of them harms no client.
const CONNECTIONS_MAX: usize = 64;
/// Time to send a request's head: what probes need by far.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause after a failed accept, which is the lack of file descriptors: it will not pass at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What a scraper asks for and gets.
const OPENMETRICS: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
const PLAIN: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// Whether clients should be sent here.
#[derive(Debug, Default)]
pub struct Health {
    is_draining: AtomicBool,
}

impl Health {
    /// From now on clients should go elsewhere.
    pub fn begin_drain(&self) {
        self.is_draining.store(true, Ordering::Release);
    }

    /// Whether a drain has begun.
    pub fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Acquire)
    }
}

/// The bound admin listener.
#[derive(Debug)]
pub struct Admin {
    listener: TcpListener,
    answers: Arc<Answers>,
}

/// What the listener answers from.
#[derive(Debug)]
struct Answers {
    health: Arc<Health>,
    registry: Arc<Registry>,
    api: Arc<Api>,
}

impl Admin {
    /// Listens on `address`; port 0 takes a free one.
    pub async fn bind(
        address: SocketAddr,
        health: Arc<Health>,
        registry: Arc<Registry>,
        api: Arc<Api>,
    ) -> io::Result<Self> {
        Ok(Self {
            listener: TcpListener::bind(address).await?,
            answers: Arc::new(Answers {
                health,
                registry,
                api,
            }),
        })
    }

    /// The address listened on.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until dropped.
    ///
    /// # Cancel safety
    /// A dropped future closes its connections.
    pub async fn serve(self) -> Infallible {
        let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let mut tasks = tokio::task::JoinSet::new();
        loop {
            while tasks.try_join_next().is_some() {}
            let permit = Arc::clone(&connections).acquire_owned().await;
            let (stream, peer) = match self.listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "accept an admin connection failed");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let answers = Arc::clone(&self.answers);
            tasks.spawn(async move {
                let service = service_fn(async |request: Request<Incoming>| {
                    Ok::<_, Infallible>(answers.answer(request, peer).await)
                });
                let served = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(HEADER_TIMEOUT)
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
                if let Err(error) = served {
                    tracing::debug!(%error, "admin connection ended");
                }
                drop(permit);
            });
        }
    }
}

impl Answers {
    async fn answer<B>(&self, request: Request<B>, peer: SocketAddr) -> Response<Body>
    where
        B: HttpBody<Data = Bytes> + Unpin,
    {
        if Api::is_for(request.uri().path()) {
            return self.api.answer(request, peer).await;
        }
        let is_probe = request.uri().path() == "/health/ready" && !self.health.is_draining();
        if is_probe && let Some(why) = self.api.unready().await {
            return respond(StatusCode::SERVICE_UNAVAILABLE, PLAIN, why.into());
        }
        answer(&request, &self.health, &self.registry)
    }
}

fn answer<B>(request: &Request<B>, health: &Health, registry: &Registry) -> Response<Body> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "only GET\n");
        response
            .headers_mut()
            .insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    match request.uri().path() {
        "/health/live" => text(StatusCode::OK, "live\n"),
        "/health/ready" if health.is_draining() => {
            text(StatusCode::SERVICE_UNAVAILABLE, "draining\n")
        }
        "/health/ready" => text(StatusCode::OK, "ready\n"),
        "/metrics" => metrics(request, registry),
        _ => text(
            StatusCode::NOT_FOUND,
            "/health/live, /health/ready, /metrics, /admin/v1/cache/stats\n",
        ),
    }
}

fn text(status: StatusCode, body: &'static str) -> Response<Body> {
    respond(status, PLAIN, Bytes::from_static(body.as_bytes()))
}

fn respond(status: StatusCode, kind: HeaderValue, body: Bytes) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
        .headers_mut()
        .insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn metrics<B>(request: &Request<B>, registry: &Registry) -> Response<Body> {
    let mut page = String::new();
    if encode(&mut page, registry).is_err() {
        return text(
            StatusCode::INTERNAL_SERVER_ERROR,
            "metrics can't be printed\n",
        );
    }
    let page = grouped(&page);
    let accept = request
        .headers()
        .get(header::ACCEPT)
        .and_then(|value| value.to_str().ok());
    // A browser would save what it can't show, so it gets the same text by a plain name.
    let wants_openmetrics = accept.is_none_or(|kinds| kinds.contains("openmetrics"));
    let kind = if wants_openmetrics {
        OPENMETRICS
    } else {
        PLAIN
    };
    respond(StatusCode::OK, kind, Bytes::from(page))
}

/// Puts the lines of each metric together under one description, as that format wants them: several
/// stores and routes bring the same metrics, each with a label of its own.
fn grouped(page: &str) -> String {
    let mut order: Vec<&str> = Vec::new();
    let mut families: HashMap<&str, Family<'_>> = HashMap::new();
    let mut current = "";
    for line in page.lines().filter(|line| *line != END) {
        let described = line
            .strip_prefix("# ")
            .and_then(|rest| rest.split(' ').nth(1));
        current = described.unwrap_or(current);
        let family = families.entry(current).or_insert_with(|| {
            order.push(current);
            Family::default()
        });
        match described {
            Some(_) if family.descriptions.contains(&line) => {}
            Some(_) => family.descriptions.push(line),
            None => family.samples.push(line),
        }
    }
    let mut grouped = String::with_capacity(page.len());
    for name in order {
        let Family {
            descriptions,
            samples,
        } = &families[name];
        for line in descriptions.iter().chain(samples) {
            grouped.push_str(line);
            grouped.push('\n');
        }
    }
    grouped.push_str(END);
    grouped.push('\n');
    grouped
}

/// What ends a page of metrics.
const END: &str = "# EOF";

/// The lines of one metric.
#[derive(Default)]
struct Family<'a> {
    descriptions: Vec<&'a str>,
    samples: Vec<&'a str>,
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::counter::Counter;

    use super::*;

    fn ask(path: &str, health: &Health, registry: &Registry) -> (u16, String, String) {
        let request = Request::get(path).body(()).unwrap();
        let response = answer(&request, health, registry);
        let kind = response.headers()[header::CONTENT_TYPE]
            .to_str()
            .unwrap()
            .to_owned();
        let status = response.status().as_u16();
        let body = read(response.into_body());
        (status, kind, body)
    }

    fn read(body: Body) -> String {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let (bytes, _) = runtime.block_on(body.collect(1024 * 1024)).unwrap();
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    #[test]
    fn ready_ends_when_the_drain_begins_and_live_goes_on() {
        let (health, registry) = (Health::default(), Registry::default());
        assert_eq!(ask("/health/live", &health, &registry).0, 200);
        assert_eq!(ask("/health/ready", &health, &registry).0, 200);
        health.begin_drain();
        assert_eq!(ask("/health/ready", &health, &registry).0, 503);
        assert_eq!(ask("/health/live", &health, &registry).0, 200);
    }

    #[test]
    fn metrics_are_printed_whole() {
        let mut registry = Registry::default();
        let counter: Counter = Counter::default();
        registry.register("forebay_tests", "Tests run", counter.clone());
        counter.inc();
        let (status, kind, page) = ask("/metrics", &Health::default(), &registry);
        assert_eq!(status, 200);
        assert!(kind.starts_with("application/openmetrics-text"), "{kind}");
        assert!(
            page.contains("forebay_tests_total 1\n") && page.ends_with("# EOF\n"),
            "{page}"
        );
    }

    #[test]
    fn metrics_of_several_stores_stand_together() {
        let mut registry = Registry::default();
        for store in ["a", "b"] {
            let labelled = registry.sub_registry_with_label(("store".into(), store.into()));
            labelled.register("reads", "Reads", Counter::<u64>::default());
            labelled.register("writes", "Writes", Counter::<u64>::default());
        }
        let (_, _, page) = ask("/metrics", &Health::default(), &registry);
        let expected = "# HELP reads Reads.\n# TYPE reads counter\n\
                        reads_total{store=\"a\"} 0\nreads_total{store=\"b\"} 0\n\
                        # HELP writes Writes.\n# TYPE writes counter\n\
                        writes_total{store=\"a\"} 0\nwrites_total{store=\"b\"} 0\n# EOF\n";
        assert_eq!(page, expected);
    }

    #[test]
    fn nothing_else_is_here() {
        let (health, registry) = (Health::default(), Registry::default());
        for path in ["/", "/metrics/", "/health", "/bucket/key"] {
            assert_eq!(ask(path, &health, &registry).0, 404, "{path}");
        }
        let post = Request::post("/metrics").body(()).unwrap();
        assert_eq!(answer(&post, &health, &registry).status(), 405);
    }
}
