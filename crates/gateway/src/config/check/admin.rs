//! Judges `[admin]`: where the operator is served, and how they prove to be it.

use std::net::SocketAddr;

use forebay_s3::sigv4::SecretKey;

use super::{Given, Section, Wrong, server::ADDRESS};
use crate::{
    admin::needs_token,
    config::{AdminConfig, Outside, SecretSource, raw::RawAdmin, section::quoted},
};

const LISTEN_DEFAULT: &str = "127.0.0.1:9001";
/// Fewest bytes of a token: nobody tries 64 random bits.
const TOKEN_BYTES_MIN: usize = 16;

pub(super) fn check(section: &mut Section<'_, '_>, raw: Option<RawAdmin>) -> AdminConfig {
    let RawAdmin {
        listen,
        token,
        token_file,
        token_env,
    } = raw.unwrap_or_default();
    let given = Given::from(listen.is_some());
    let text = listen.unwrap_or_else(|| LISTEN_DEFAULT.to_owned());
    let listen = section.parsed("listen", &text, given, ADDRESS);
    let is_any_set = token.is_some() || token_file.is_some() || token_env.is_some();
    let token = check_token(section, (token, token_file, token_env));
    if let Some(source) = &token {
        section.note_outside(Outside::AdminToken(source.clone()));
    }
    if let Some(address) = listen
        && needs_token(address.ip())
        && !is_any_set
    {
        let wrong = Wrong {
            value: "(not set)".to_owned(),
            allowed: "a token, as admin.listen is not a loopback address",
            remedy: "name a file with a long random text in admin.token_file, or listen on \
                     127.0.0.1; health and metrics never ask for it",
        };
        section.fault("token", wrong);
    }
    AdminConfig {
        listen: listen.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 9001))),
        token,
    }
}

fn check_token(
    section: &mut Section<'_, '_>,
    given: (Option<String>, Option<String>, Option<String>),
) -> Option<SecretSource> {
    match given {
        (None, None, None) => {
            section.note("token", "(not set)", Given::No);
            None
        }
        (Some(token), None, None) => {
            section.note("token", "\"***\"", Given::Yes);
            if token.len() < TOKEN_BYTES_MIN {
                let wrong = Wrong {
                    value: "***".to_owned(),
                    allowed: "at least 16 characters",
                    remedy: "choose a random text, such as `openssl rand -hex 32` prints",
                };
                section.fault("token", wrong);
            }
            Some(SecretSource::Inline(SecretKey::new(token)))
        }
        (None, Some(file), None) => {
            section.note("token_file", quoted(&file), Given::Yes);
            Some(SecretSource::File(file.into()))
        }
        (None, None, Some(name)) => {
            section.note("token_env", quoted(&name), Given::Yes);
            Some(SecretSource::Environment(name))
        }
        (Some(_) | None, Some(_) | None, Some(_) | None) => {
            let wrong = Wrong {
                value: "(several)".to_owned(),
                allowed: "one of token, token_file, token_env",
                remedy: "keep the one that holds the token and remove the others",
            };
            section.fault("token", wrong);
            None
        }
    }
}
