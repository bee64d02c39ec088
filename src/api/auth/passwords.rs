//! Passwords: argon2id (RFC 9106) off the async threads, few at a time, and as slow for users who are not there.

use std::sync::Arc;
use std::time::Duration;

use argon2::{Argon2, PasswordHash, PasswordHasher, PasswordVerifier};
use base64::Engine as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use zeroize::Zeroizing;

use crate::api::problem::{Kind, Problem};
use crate::domain::{Ambient, Invalid};

/// The fewest characters of a password.
pub const MIN_PASSWORD: usize = 12;
/// The most characters of a password: hashing more is work for nothing.
pub const MAX_PASSWORD: usize = 256;
/// Each hash takes 19 MiB and tens of milliseconds; so many run at once.
const AT_ONCE: usize = 2;
/// How long a sign-in waits for its turn.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the password of a user who is not there is checked against; with the same parameters, so that it takes as long. No
/// password is known for it, and its match would count for nothing.
const NOBODY: &str = "$argon2id$v=19$m=19456,t=2,p=1$bm9ib2R5Li4ubm9ib2R5$c29tZXRoaW5nIHRoYXQgaXMgbm8gaGFzaCBhdCBhbGw";

/// Hashes and checks passwords.
pub struct Passwords {
    ambient: Ambient,
    turns: Arc<Semaphore>,
}

impl Passwords {
    /// Over a random source.
    pub fn new(ambient: Ambient) -> Self {
        Self { ambient, turns: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    /// The PHC string of a password.
    pub async fn hash(&self, password: Zeroizing<String>) -> Result<String, Problem> {
        let salt: [u8; 16] = self.ambient.random();
        let permit = self.turn().await?;
        blocking(permit, move || hash_with_salt(&password, &salt)).await?.map_err(|cause| Problem::internal("hashing a password", &cause))
    }

    /// Whether the password is the one of that PHC string. `None`: there is no such user, and it takes as long.
    pub async fn verify(&self, password: Zeroizing<String>, stored: Option<String>) -> Result<bool, Problem> {
        let permit = self.turn().await?;
        let known = stored.is_some();
        let stored = stored.unwrap_or_else(|| NOBODY.to_owned());
        let matches = blocking(permit, move || {
            PasswordHash::new(&stored).is_ok_and(|hash| Argon2::default().verify_password(password.as_bytes(), &hash).is_ok())
        })
        .await?;
        Ok(known && matches)
    }

    /// A password that nobody guesses: 144 random bits.
    pub fn generate(&self) -> Zeroizing<String> {
        let random: Zeroizing<[u8; 18]> = Zeroizing::new(self.ambient.random());
        Zeroizing::new(base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(random.as_slice()))
    }

    async fn turn(&self) -> Result<OwnedSemaphorePermit, Problem> {
        match tokio::time::timeout(PATIENCE, Arc::clone(&self.turns).acquire_owned()).await {
            Ok(Ok(permit)) => Ok(permit),
            _ => Err(Problem::new(Kind::Throttled, "too many people sign in at once; try again in a moment").retry_after(5)),
        }
    }
}

async fn blocking<T: Send + 'static>(permit: OwnedSemaphorePermit, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Problem> {
    tokio::task::spawn_blocking(move || {
        let done = work();
        drop(permit);
        done
    })
    .await
    .map_err(|cause| Problem::internal("checking a password", &cause.into()))
}

fn hash_with_salt(password: &str, salt: &[u8]) -> anyhow::Result<String> {
    let hash: PasswordHash =
        Argon2::default().hash_password_with_salt(password.as_bytes(), salt).map_err(|error| anyhow::anyhow!("argon2: {error}"))?;
    Ok(hash.to_string())
}

/// Refuses what is too short to withstand guessing, or too long to hash.
pub fn check_strength(field: &str, password: &str) -> Result<(), Invalid> {
    if password.chars().count() < MIN_PASSWORD {
        return Err(Invalid::new(field, format!("a password has at least {MIN_PASSWORD} characters")));
    }
    if password.chars().count() > MAX_PASSWORD {
        return Err(Invalid::new(field, format!("a password has at most {MAX_PASSWORD} characters")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &str) -> Zeroizing<String> {
        Zeroizing::new(text.to_owned())
    }

    #[tokio::test]
    async fn only_the_password_itself_verifies() {
        let passwords = Passwords::new(Ambient::system());
        let hash = passwords.hash(secret("correct horse battery")).await.unwrap();
        assert!(hash.starts_with("$argon2id$"));
        assert!(passwords.verify(secret("correct horse battery"), Some(hash.clone())).await.unwrap());
        assert!(!passwords.verify(secret("correct horse batterz"), Some(hash)).await.unwrap());
        assert!(!passwords.verify(secret("correct horse battery"), None).await.unwrap());
        let parameters = |phc: &str| phc.split('$').take(4).map(str::to_owned).collect::<Vec<_>>();
        let fresh = passwords.hash(secret("correct horse battery")).await.unwrap();
        assert_eq!(parameters(&fresh), parameters(NOBODY));
        assert!(PasswordHash::new(NOBODY).is_ok());
    }

    #[test]
    fn short_and_endless_passwords_are_refused() {
        assert!(check_strength("password", "elevenchars").is_err());
        assert!(check_strength("password", &"a".repeat(257)).is_err());
        assert_eq!(check_strength("password", "twelve chars"), Ok(()));
    }
}
