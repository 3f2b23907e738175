//! `forebay serve`: reads the config, starts everything, waits for signals, ends in order.
//!
//! The order of a start is the order in which things may fail: config, users, stores, addresses.
//! Nothing listens before everything is known to be right. The gateway has threads of its own;
//! the runtime here carries signals, reloads and the admin listener.

mod banner;
mod log;
mod reload;
mod root;

use std::{path::Path, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use forebay_gateway::{
    Gateway, Parts, Running, access,
    admin::{Admin, Api, Caches, Health, Operators},
    assemble::{self, Assembly},
    config::{self, Config, Fault, File, Flags, Judged},
};
use forebay_store::{Budget, Clock};
use prometheus_client::registry::Registry;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::{FaultyConfig, arguments::SourceArguments, code, machine};

pub(crate) use root::RootSource;

/// Threads for the few blocking calls of this runtime: reloads of config and certificates.
const BLOCKING_THREADS_MAX: usize = 4;
/// Stack of such a thread: half of what Rust takes; a deep policy document needs a few KiB.
const STACK_BYTES: usize = 1024 * 1024;
/// Time for caches to write to their disks what is read often, after the drain: a second or two of
/// writing at the speed of most disks, and what is not written is only read again.
const CLOSE_TIME_MAX: Duration = Duration::from_secs(10);

/// Runs the gateway until it is told to end.
pub(crate) fn serve(arguments: &SourceArguments) -> Result<()> {
    let config = ConfigSources::read(arguments)?.load_whole()?;
    log::start(config.log);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .thread_stack_size(STACK_BYTES)
        .build()
        .context("start runtime")?;
    runtime.block_on(run(config, arguments))
}

async fn run(config: Config, arguments: &SourceArguments) -> Result<()> {
    // Signals are caught from here on, so that none that comes during the start is lost.
    let mut signals = Signals::catch()?;
    let root = RootSource::of(&config).obtain()?;
    let sources = access::Sources {
        root: root.key(),
        variable: &variable,
    };
    let users =
        access::load(&config.access, &config.settings.listeners, sources).map_err(FaultyConfig)?;

    let clock = Clock::system();
    let budget = Budget::new(config.memory.budget_bytes, config.memory.wait_max);
    let mut registry = Registry::default();
    let components = assemble::Components {
        clock: &clock,
        budget: &budget,
        variable: &variable,
    };
    let assembly = assemble::assemble(&config, components, &mut registry).await?;
    let Assembly { routes, operators } = assembly;
    let ending = operators.clone();
    let metrics = Gateway::metrics(&config.settings);
    metrics.register(&mut registry);
    assemble::register_gauges(&mut registry, &budget);

    let health = Arc::new(Health::default());
    let token = config.admin.token.as_ref();
    let token = token.map(|source| access::read_token(source, &variable));
    let token = token
        .transpose()
        .map_err(|fault| FaultyConfig(vec![fault]))?;
    let api = Api::new(operators, token, Arc::clone(&health), clock.clone());
    let api = Arc::new(api);
    let (registry, listen) = (Arc::new(registry), config.admin.listen);
    let admin = Admin::bind(listen, Arc::clone(&health), registry, Arc::clone(&api))
        .await
        .with_context(|| format!("listen on {listen} (admin)"))?;
    let admin_address = admin.address().context("ask for the admin address")?;
    let parts = Parts {
        routes,
        users,
        clock,
        budget,
        metrics,
    };
    let running = Gateway::start(config.settings.clone(), parts).context("start gateway")?;
    let admin = tokio::spawn(admin.serve());
    let working = ending.start();

    let started = banner::Started {
        config: &config,
        running: &running,
        root: &root,
        admin_address,
    };
    banner::print(&started);
    tracing::info!(
        listen = ?running.addresses(),
        admin = %admin_address,
        stores = config.stores.len(),
        routes = config.routes.len(),
        cache_bytes = config.cache_bytes(),
        threads = config.settings.threads.get(),
        "started"
    );
    code::give_back();
    let mut current = config;
    while let Event::Reload = signals.next().await {
        reload::reload(&mut current, arguments, &running, root.key()).await;
    }
    health.begin_drain();
    api.stop().await;
    drain(running, current.drain_timeout, &mut signals).await;
    drop(working);
    end(&ending, current.drain_timeout, &mut signals).await;
    close(&ending.caches, &mut signals).await;
    ending.tiers.close().await;
    admin.abort();
    Ok(())
}

/// Lets requests finish; a second signal cuts them.
async fn drain(running: Running, within: Duration, signals: &mut Signals) {
    tracing::info!(requests = running.requests_in_flight(), ?within, "draining");
    tokio::select! {
        drained = running.drain(within) => match drained.connections_cut {
            0 => tracing::info!("stopped"),
            connections => tracing::warn!(connections, "stopped, these did not finish in time"),
        },
        () = signals.stop_again() => tracing::warn!("stopped at once by a second signal"),
    }
}

/// Lets tiers move and mirrors write what they are told to before the end; a second signal ends
/// that as well.
async fn end(operators: &Operators, within: Duration, signals: &mut Signals) {
    tokio::select! {
        () = operators.stop(within) => {}
        () = signals.stop_again() => {
            tracing::warn!("stopped before tiers and mirrors had done everything; it is durable");
        }
    }
}

/// Lets the caches write to their disks what is read often; a second signal ends that as well.
async fn close(caches: &Caches, signals: &mut Signals) {
    let closed = tokio::select! {
        closed = tokio::time::timeout(CLOSE_TIME_MAX, caches.close()) => closed.is_ok(),
        () = signals.stop_again() => false,
    };
    if !closed {
        tracing::warn!("stopped before the caches had written what is read often to disk");
    }
}

/// What a signal asks for.
enum Event {
    Reload,
    Stop,
}

/// The signals that are listened to.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn catch() -> Result<Self> {
        let catch = |kind| signal(kind).context("catch signals");
        Ok(Self {
            terminate: catch(SignalKind::terminate())?,
            interrupt: catch(SignalKind::interrupt())?,
            hangup: catch(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> Event {
        tokio::select! {
            _ = self.terminate.recv() => Event::Stop,
            _ = self.interrupt.recv() => Event::Stop,
            _ = self.hangup.recv() => Event::Reload,
        }
    }

    async fn stop_again(&mut self) {
        while let Event::Reload = self.next().await {}
    }
}

/// Everything that a config is made of, as it is at this moment.
pub(crate) struct ConfigSources(config::Sources);

impl ConfigSources {
    /// Reads the file and the environment.
    pub(crate) fn read(arguments: &SourceArguments) -> Result<Self> {
        let SourceArguments {
            config,
            origin,
            data,
            listen,
            admin_listen,
        } = arguments;
        let file = config.as_deref().map(read_file).transpose()?;
        let environment = std::env::vars_os()
            .filter_map(|(name, text)| Some((name.into_string().ok()?, text.into_string().ok()?)))
            .collect();
        let flags = Flags {
            listen: listen.clone(),
            admin_listen: admin_listen.clone(),
            data: data
                .as_ref()
                .map(|path| path.to_string_lossy().into_owned()),
            origins: origin.clone(),
        };
        Ok(Self(config::Sources {
            file,
            environment,
            flags,
        }))
    }

    /// Merges and checks it all.
    pub(crate) fn load(&self) -> Result<Config> {
        Ok(Config::load(&self.0, &machine::surroundings()).map_err(FaultyConfig)?)
    }

    /// Merges and checks it all, and reads what it names outside of itself (secrets, policies,
    /// users), so that all that is wrong anywhere is told at once.
    pub(crate) fn load_whole(&self) -> Result<Config> {
        let Judged { config, outside } = Config::judge(&self.0, &machine::surroundings());
        let mut faults = match &config {
            Ok(config) => faults_of_users(config)?,
            Err(faults) => [faults.clone(), root::faults_of_environment()].concat(),
        };
        for fault in access::faults_of(&outside, &variable) {
            if !faults.contains(&fault) {
                faults.push(fault);
            }
        }
        match config {
            Ok(config) if faults.is_empty() => Ok(config),
            Ok(_) | Err(_) => Err(FaultyConfig(faults).into()),
        }
    }
}

/// What is wrong with the users of a config that is right by itself.
fn faults_of_users(config: &Config) -> Result<Vec<Fault>> {
    let root = match RootSource::of(config).key_for_check() {
        Ok(root) => root,
        Err(error) => return Ok(error.downcast::<FaultyConfig>()?.0),
    };
    let sources = access::Sources {
        root: root.as_ref(),
        variable: &variable,
    };
    let users = access::load(&config.access, &config.settings.listeners, sources);
    Ok(users.err().unwrap_or_default())
}

fn read_file(path: &Path) -> Result<File> {
    let shown = path.display().to_string();
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(File { path: shown, text }),
        Err(error) => Err(FaultyConfig(vec![Fault {
            key: "--config".to_owned(),
            value: format!("{shown:?}"),
            allowed: "a file that can be read".to_owned(),
            remedy: format!("{error}; `forebay config example` prints a file to begin with"),
        }])
        .into()),
    }
}

/// A variable of the environment.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
