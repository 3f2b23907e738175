//! Servers of a test: started here, in a folder of their own, and killed when they are dropped.

use std::{
    io::{BufRead as _, BufReader},
    net::TcpListener,
    path::Path,
    process::{Child, Command, Stdio},
};

use forebay_redis::{
    RedisSettings,
    settings::{Mode, ServerAddress},
};
use redis::{AsyncConnectionConfig, FromRedisValue, aio::MultiplexedConnection};
use tempfile::TempDir;

/// What a server says once it takes commands; a sentinel says the other.
const READY: [&str; 2] = ["Ready to accept connections", "Sentinel ID is"];

/// A server, or a sentinel.
pub(crate) struct Server {
    pub(crate) port: u16,
    folder: TempDir,
    arguments: Vec<String>,
    child: Child,
}

/// A port that was free a moment ago, below those from which outgoing connections take theirs.
pub(crate) fn free_port() -> u16 {
    for _ in 0..1000 {
        let port = fastrand::u16(12_000..32_000);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no port is free");
}

impl Server {
    /// A server that logs each write before it answers, with these settings besides.
    pub(crate) fn start(settings: &[&str]) -> Self {
        let mut arguments: Vec<&str> = vec!["--appendonly", "yes", "--appendfsync", "always"];
        arguments.extend(settings);
        Self::start_with(&arguments)
    }

    /// A server that keeps no log unless these settings say so.
    pub(crate) fn start_with(settings: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        // Another test may take a port between its choice and its use.
        for _ in 0..20 {
            let port = free_port();
            let mut arguments = vec!["--port".to_owned(), port.to_string()];
            arguments.extend(["--save", ""].map(str::to_owned));
            arguments.extend(settings.iter().map(ToString::to_string));
            if let Some(child) = run(&arguments, folder.path()) {
                return Self {
                    port,
                    folder,
                    arguments,
                    child,
                };
            }
        }
        panic!("redis-server did not start");
    }

    /// A server in the place of another one that is gone.
    pub(crate) fn start_at(port: &str, settings: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut arguments = vec!["--port".to_owned(), port.to_owned()];
        arguments.extend(settings.iter().map(ToString::to_string));
        let child = run(&arguments, folder.path()).expect("the port is free again");
        Self {
            port: port.parse().expect("a port"),
            folder,
            arguments,
            child,
        }
    }

    /// A sentinel that watches a master; it takes it for gone after a second.
    pub(crate) fn sentinel(master_port: u16) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        for _ in 0..20 {
            let port = free_port();
            let settings = format!(
                "port {port}\nsentinel monitor main 127.0.0.1 {master_port} 2\n\
                 sentinel down-after-milliseconds main 1000\nsentinel failover-timeout main 5000\n"
            );
            let path = folder.path().join("sentinel.conf");
            std::fs::write(&path, settings).expect("a file");
            let arguments = vec![path.display().to_string(), "--sentinel".to_owned()];
            if let Some(child) = run(&arguments, folder.path()) {
                return Self {
                    port,
                    folder,
                    arguments,
                    child,
                };
            }
        }
        panic!("no sentinel started");
    }

    /// Ends the process without warning, as `kill -9` does.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("a process of this test");
        self.child.wait().expect("a process of this test");
    }

    /// Starts the process again, on the same port and folder.
    pub(crate) fn restart(&mut self) {
        self.kill();
        self.child = run(&self.arguments, self.folder.path()).expect("it started before");
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn address(&self) -> ServerAddress {
        ServerAddress {
            host: "127.0.0.1".to_owned(),
            port: self.port,
        }
    }

    pub(crate) fn settings(&self) -> RedisSettings {
        RedisSettings::single("127.0.0.1", self.port)
    }

    pub(crate) async fn connection(&self) -> MultiplexedConnection {
        let client = redis::Client::open(format!("redis://127.0.0.1:{}", self.port));
        let client = client.expect("an address");
        // A busy machine may take longer than the second that is usual.
        let patient = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(crate::PATIENCE))
            .set_response_timeout(Some(crate::PATIENCE));
        client
            .get_multiplexed_async_connection_with_config(&patient)
            .await
            .expect("a connection")
    }

    /// Does one command, past the store.
    pub(crate) async fn command<T: FromRedisValue>(&self, words: &[&str]) -> T {
        let mut command = redis::cmd(words[0]);
        for word in &words[1..] {
            command.arg(*word);
        }
        let answer = command.query_async(&mut self.connection().await).await;
        answer.unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts the program and waits until it takes commands; `None` where it ends instead.
fn run(arguments: &[String], folder: &Path) -> Option<Child> {
    let mut child = Command::new("redis-server")
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("redis-server (scripts/setup test installs it)");
    let output = child.stdout.take().expect("it was piped");
    let mut lines = BufReader::new(output).lines().map_while(Result::ok);
    let ready = lines.any(|line| READY.iter().any(|ready| line.contains(ready)));
    if !ready {
        let _ = child.wait();
        return None;
    }
    // Whatever else it says is read, or it would wait for that one day.
    std::thread::spawn(move || lines.for_each(drop));
    Some(child)
}

/// Three masters that share the slots.
pub(crate) struct Cluster {
    pub(crate) servers: Vec<Server>,
}

impl Cluster {
    pub(crate) async fn start() -> Self {
        let servers: Vec<Server> = (0..3).map(|_| Server::of_cluster()).collect();
        for (server, slots) in
            servers
                .iter()
                .zip([("0", "5460"), ("5461", "10922"), ("10923", "16383")])
        {
            let _: () = server
                .command(&["CLUSTER", "ADDSLOTSRANGE", slots.0, slots.1])
                .await;
        }
        let cluster = Self { servers };
        for other in &cluster.servers[1..] {
            let (port, bus) = (other.port.to_string(), other.bus_port());
            let first = &cluster.servers[0];
            let _: () = first
                .command(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus])
                .await;
        }
        crate::eventually("a cluster", async || cluster.is_whole().await).await;
        cluster
    }

    async fn is_whole(&self) -> bool {
        for server in &self.servers {
            let told: String = server.command(&["CLUSTER", "INFO"]).await;
            if !told.contains("cluster_state:ok") || !told.contains("cluster_known_nodes:3") {
                return false;
            }
        }
        true
    }

    /// A replica of one of the masters, which has everything that it has.
    pub(crate) async fn replica(&self, of: usize) -> Server {
        let (master, replica) = (&self.servers[of], Server::of_cluster());
        let (port, bus) = (master.port.to_string(), master.bus_port());
        let _: () = replica
            .command(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus])
            .await;
        let id: String = master.command(&["CLUSTER", "MYID"]).await;
        crate::eventually("they know each other", async || {
            let told: String = replica.command(&["CLUSTER", "NODES"]).await;
            let slots = told.lines().find(|line| line.contains(&id));
            slots.is_some_and(|line| line.ends_with("-5460")) && told.lines().count() == 4
        })
        .await;
        let _: () = replica.command(&["CLUSTER", "REPLICATE", &id]).await;
        crate::eventually("it has everything", async || {
            let told: String = replica.command(&["INFO", "replication"]).await;
            told.contains("master_link_status:up")
        })
        .await;
        replica
    }

    pub(crate) fn settings(&self) -> RedisSettings {
        let mut settings = self.servers[0].settings();
        settings.mode = Mode::Cluster;
        settings
    }
}

impl Server {
    fn of_cluster() -> Self {
        let bus = free_port().to_string();
        Self::start(&[
            "--cluster-enabled",
            "yes",
            "--cluster-port",
            &bus,
            "--cluster-node-timeout",
            "5000",
        ])
    }

    fn bus_port(&self) -> String {
        let at = self
            .arguments
            .iter()
            .position(|word| word == "--cluster-port");
        self.arguments[at.expect("a node of a cluster") + 1].clone()
    }
}
