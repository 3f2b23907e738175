//! Gateways in this process, made of the text of a config just as the program makes them.

use std::num::NonZeroUsize;

use forebay_gateway::{
    Gateway, Parts, Running, access,
    assemble::{self, Components},
    config::{Config, File, Flags, Sources, Surroundings},
};
use forebay_store::{Budget, Clock};
use prometheus_client::registry::Registry;
use tempfile::TempDir;

pub(crate) const ACCESS_KEY: &str = "AKIDORACLE";
pub(crate) const SECRET_KEY: &str = "oracle/secret+key";
pub(crate) const REGION: &str = "eu-central-1";

/// A running gateway and all that it needs; stops when dropped, what is behind it last.
pub(crate) struct Server {
    running: Running,
    _behind: Option<Box<Self>>,
    _directory: Option<TempDir>,
}

impl Server {
    /// On memory.
    pub(crate) async fn on_memory() -> Self {
        Self {
            running: start("[stores.only]\ntype = \"memory\"\n", NO_LAYER).await,
            _behind: None,
            _directory: None,
        }
    }

    /// On a directory.
    pub(crate) async fn on_directory() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = format!("[stores.only]\ntype = \"fs\"\n{}", path_of(&directory));
        Self {
            running: start(&store, NO_LAYER).await,
            _behind: None,
            _directory: Some(directory),
        }
    }

    /// With a cache, in front of another gateway.
    pub(crate) async fn before(origin: Self) -> Self {
        let store = format!(
            "[stores.only]\ntype = \"s3\"\nendpoint = \"{}\"\nregion = \"{REGION}\"\n\
             credentials = \"keys\"\naccess_key = \"{ACCESS_KEY}\"\n\
             secret_key = \"{SECRET_KEY}\"\n",
            origin.url()
        );
        Self {
            running: start(&store, "{ type = \"cache\", memory = \"64MiB\" }").await,
            _behind: Some(Box::new(origin)),
            _directory: None,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.running.addresses()[0])
    }
}

const NO_LAYER: &str = "";

fn path_of(directory: &TempDir) -> String {
    let path = directory.path().display();
    // Durability costs the tests time and shows in none of them.
    format!("path = \"{path}\"\ndurability = \"none\"\n")
}

async fn start(store: &str, layer: &str) -> Running {
    let text = format!(
        "[server]\nlisten = [\"127.0.0.1:0\"]\nregions = [\"{REGION}\"]\nthreads = 2\n\
         [users.oracle]\naccess_key = \"{ACCESS_KEY}\"\nsecret_key = \"{SECRET_KEY}\"\n\
         policies = [\"admin\"]\n[[routes]]\nstore = \"only\"\nlayers = [{layer}]\n{store}"
    );
    let sources = Sources {
        file: Some(File {
            path: "oracle.toml".to_owned(),
            text,
        }),
        environment: Vec::new(),
        flags: Flags::default(),
    };
    let surroundings = Surroundings {
        memory_bytes: 4 << 30,
        cores: NonZeroUsize::MIN,
        aws_region: None,
    };
    let config = Config::load(&sources, &surroundings).unwrap();
    let of_access = access::Sources {
        root: None,
        variable: &|_| None,
    };
    let users = access::load(&config.access, &config.settings.listeners, of_access).unwrap();
    let clock = Clock::system();
    let budget = Budget::new(config.memory.budget_bytes, config.memory.wait_max);
    let components = Components {
        clock: &clock,
        budget: &budget,
        variable: &|_| None,
    };
    let mut registry = Registry::default();
    let assembly = assemble::assemble(&config, components, &mut registry)
        .await
        .unwrap();
    let metrics = Gateway::metrics(&config.settings);
    let parts = Parts {
        routes: assembly.routes,
        users,
        clock,
        budget,
        metrics,
    };
    Gateway::start(config.settings, parts).unwrap()
}
