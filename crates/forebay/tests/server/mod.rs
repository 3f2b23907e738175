//! Starts the built program, talks to it over plain TCP, reads what it prints.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Long enough for a debug build on a busy machine; reached only by a test that fails.
const PATIENCE: Duration = Duration::from_mins(1);

/// How often something is looked at that is about to be so; each look takes a connection's time.
const ATTEMPTS_MAX: usize = 50_000;

/// What a command that ends by itself left behind.
pub(crate) struct Output {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs the program without any settings of this machine.
pub(crate) fn run(arguments: &[&str]) -> Output {
    run_with(arguments, &[])
}

pub(crate) fn run_with(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let output = command(variables).args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Output {
        code: output.status.code().expect("ended by itself"),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}

fn command(variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    for (name, _) in std::env::vars_os() {
        let is_setting = name
            .to_str()
            .is_some_and(|n| n.starts_with("FOREBAY_") || n.starts_with("AWS_"));
        if is_setting {
            command.env_remove(name);
        }
    }
    command.envs(variables.iter().copied()).stdin(Stdio::null());
    command
}

/// A running gateway; killed when dropped.
pub(crate) struct Server {
    child: Child,
    lines: Receiver<String>,
    printed: String,
    pub(crate) address: SocketAddr,
    admin_address: SocketAddr,
    config: Option<(TempDir, PathBuf)>,
}

impl Server {
    /// Starts on free ports and waits until it serves.
    pub(crate) fn start(arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let listen = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];
        Self::spawn(&[arguments, &listen].concat(), variables, None)
    }

    /// Starts with this config file, which says where to listen.
    pub(crate) fn with_config(text: &str) -> Self {
        Self::with_config_and(text, &[], &[])
    }

    /// The same with further flags and variables.
    pub(crate) fn with_config_and(text: &str, flags: &[&str], variables: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("forebay.toml");
        std::fs::write(&file, text).unwrap();
        let (config, data) = (file.display().to_string(), directory.path().join("data"));
        let files = ["--config", &config, "--data", data.to_str().unwrap()];
        Self::spawn(
            &[&files, flags].concat(),
            variables,
            Some((directory, file)),
        )
    }

    fn spawn(
        arguments: &[&str],
        variables: &[(&str, &str)],
        config: Option<(TempDir, PathBuf)>,
    ) -> Self {
        let mut child = command(variables)
            .arg("serve")
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (sender, lines) = channel();
        // Ends with the program, whose standard error closes then.
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let printed = String::new();
        let mut server = Self {
            child,
            lines,
            printed,
            address: nowhere,
            admin_address: nowhere,
            config,
        };
        server.wait_for_line("started");
        server.address = server.address_after("  listen   http://");
        server.admin_address = server.address_after("  admin    http://");
        server
    }

    fn address_after(&self, prefix: &str) -> SocketAddr {
        let rest = self
            .printed
            .lines()
            .find_map(|line| line.strip_prefix(prefix))
            .unwrap();
        rest.split(['/', ' ']).next().unwrap().parse().unwrap()
    }

    /// Reads on until a line contains `text`.
    pub(crate) fn wait_for_line(&mut self, text: &str) {
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => {
                    self.printed.push_str(&line);
                    self.printed.push('\n');
                    if line.contains(text) {
                        return;
                    }
                }
                Err(RecvTimeoutError::Timeout) => panic!("no {text:?} in:\n{}", self.printed),
                Err(RecvTimeoutError::Disconnected) => {
                    panic!("ended without {text:?}:\n{}", self.printed)
                }
            }
        }
    }

    /// Everything printed up to now, or up to the end if it has ended.
    pub(crate) fn printed(&mut self) -> String {
        loop {
            let patience = self.patience_for_more();
            let Ok(line) = self.lines.recv_timeout(patience) else {
                return self.printed.clone();
            };
            self.printed.push_str(&line);
            self.printed.push('\n');
        }
    }

    /// A program that has ended closes its output, so its last line is worth waiting for.
    fn patience_for_more(&mut self) -> Duration {
        if self.child.try_wait().unwrap().is_some() {
            PATIENCE
        } else {
            Duration::ZERO
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Asks it to end; returns its exit code.
    pub(crate) fn stop(&mut self) -> i32 {
        self.signal(Signal::TERM);
        self.wait()
    }

    pub(crate) fn wait(&mut self) -> i32 {
        self.child.wait().unwrap().code().expect("ended by itself")
    }

    /// Replaces the config, asks for a reload, and waits for what it says about it.
    pub(crate) fn reload(&mut self, config: &str, answer: &str) {
        let (_, file) = self.config.as_ref().unwrap();
        std::fs::write(file, config).unwrap();
        self.signal(Signal::HUP);
        self.wait_for_line(answer);
    }

    /// Asks the admin listener.
    pub(crate) fn admin(&self, path: &str) -> (u16, String) {
        request(self.admin_address, &format!("GET {path}"), "")
    }

    /// Sends the head of an upload; its body is the caller's.
    pub(crate) fn begin_upload(&self, path: &str, body_bytes: usize) -> TcpStream {
        let mut stream = connect(self.address);
        let head =
            format!("PUT {path} HTTP/1.1\r\nhost: test\r\ncontent-length: {body_bytes}\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        stream
    }

    /// Waits until the metrics have this line.
    pub(crate) fn wait_for_metric(&self, line: &str) {
        let is_there = || self.admin("/metrics").1.lines().any(|shown| shown == line);
        assert!((0..ATTEMPTS_MAX).any(|_| is_there()), "no metric {line}");
    }

    /// Waits until clients can't connect any more.
    pub(crate) fn wait_until_refused(&self) {
        let is_refused = || TcpStream::connect(self.address).is_err();
        assert!((0..ATTEMPTS_MAX).any(|_| is_refused()), "still accepts");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has ended already, but for a test that fails.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A running tap; killed when dropped.
pub(crate) struct Tap {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Tap {
    /// Starts one with these flags, and waits until it listens.
    pub(crate) fn start(flags: &[&str]) -> Self {
        let mut child = command(&[])
            .arg("tap")
            .args(flags)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        // "tap: 127.0.0.1:1234 -> ..."
        let address = line.split(' ').nth(1).unwrap().parse().unwrap();
        Self { child, address }
    }

    /// Asks it to end; returns its exit code.
    pub(crate) fn stop(&mut self) -> i32 {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        self.child.wait().unwrap().code().expect("ended by itself")
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        // It has ended already, but for a test that fails.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Sends one request, `"GET /path"`, and returns status and body.
pub(crate) fn request(address: SocketAddr, line: &str, body: &str) -> (u16, String) {
    let mut stream = connect(address);
    let length = body.len();
    let head = format!(
        "{line} HTTP/1.1\r\nhost: test\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    read_answer(stream)
}

/// Reads an answer to its end by its length, or to the end of the connection.
pub(crate) fn read_answer(stream: TcpStream) -> (u16, String) {
    let mut stream = BufReader::new(stream);
    let (mut head, mut line) = (String::new(), String::new());
    while stream.read_line(&mut line).unwrap() > 2 {
        head.push_str(&line);
        line.clear();
    }
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length")
            .then(|| value.trim().parse::<u64>().unwrap())
    });
    let mut body = Vec::new();
    stream
        .take(length.unwrap_or(u64::MAX))
        .read_to_end(&mut body)
        .unwrap();
    (status, String::from_utf8_lossy(&body).into_owned())
}
