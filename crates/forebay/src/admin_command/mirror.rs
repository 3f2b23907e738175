//! `forebay admin mirror …`.

use std::process::ExitCode;

use anyhow::Result;
use forebay_gateway::admin::messages::{
    Comparing, JobStatus, MemberStatus, MirrorStatus, MirrorsAnswer,
};

use super::{
    Admin,
    arguments::{MirrorArguments, MirrorCommand, RepairArguments},
    follow,
    show::{self, table, whole},
};

impl Admin {
    pub(super) async fn mirror(&self, command: &MirrorCommand) -> Result<ExitCode> {
        match command {
            MirrorCommand::Status => {
                let answer: MirrorsAnswer = self.get("/mirror/status").await?;
                self.print(&answer, status)
            }
            MirrorCommand::Verify(arguments) => {
                let comparing = comparing(arguments);
                self.compare("/mirror/verify", comparing, arguments).await
            }
            MirrorCommand::Repair(RepairArguments { mirror, delete }) => {
                let comparing = Comparing {
                    delete: *delete,
                    ..comparing(mirror)
                };
                self.compare("/mirror/repair", comparing, mirror).await
            }
        }
    }

    async fn compare(
        &self,
        path: &str,
        comparing: Comparing,
        arguments: &MirrorArguments,
    ) -> Result<ExitCode> {
        let interrupts = follow::interrupts()?;
        let job: JobStatus = self.tell(path, &comparing).await?;
        if arguments.detach {
            return self.print(&job, show::detached);
        }
        self.see_through(job, interrupts).await
    }
}

fn comparing(arguments: &MirrorArguments) -> Comparing {
    Comparing {
        store: arguments.store.clone(),
        bucket: arguments.bucket.clone(),
        prefix: arguments.prefix.clone(),
        full: arguments.full,
        delete: false,
    }
}

fn status(answer: &MirrorsAnswer) -> String {
    if answer.mirrors.is_empty() {
        return "no store is a mirror\n".to_owned();
    }
    let mirrors: Vec<String> = answer.mirrors.iter().map(one_mirror).collect();
    mirrors.join("\n")
}

fn one_mirror(mirror: &MirrorStatus) -> String {
    let head = format!(
        "store {}: writes go to {} of {}; {} keys in journal {} (space {})\n",
        mirror.store,
        mirror.writes_min,
        mirror.members.len(),
        mirror.journal_keys,
        mirror.journal,
        mirror.space
    );
    let mut rows = vec![
        [
            "state",
            "behind by",
            "oldest",
            "requests",
            "failed",
            "member",
        ]
        .map(str::to_owned),
    ];
    rows.extend(mirror.members.iter().map(member_row));
    head + &table(&rows)
}

fn member_row(member: &MemberStatus) -> [String; 6] {
    let oldest = member.oldest_pending_seconds;
    [
        member.state.clone(),
        format!("{} keys", member.pending_keys),
        oldest
            .map(|age| format!("{} s", whole(age)))
            .unwrap_or_default(),
        member.requests.to_string(),
        member.failures.to_string(),
        member.store.clone(),
    ]
}
