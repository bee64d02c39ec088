//! Upkeep of a cluster's etcd through its JSON gateway: how full it is, compaction, defragmentation, and the way out of NOSPACE.
//!
//! etcd over its quota is read-only for ever: it raises NOSPACE and refuses writes until somebody compacts, defragments and disarms.
//! What is to be done follows from numbers alone ([`upkeep`]); [`Maintenance`] does it. May import: `engine::plan` (ports).

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::Context as _;
use serde::Deserialize;
use serde_json::{Value, json};

use super::component_http::{self, Identity};
use super::plan::ports;

/// Below this size, fragmentation costs less than the pause that defragmentation makes.
const WORTH_DEFRAGMENTING: u64 = 64 << 20;
/// How long a request has: a defragmentation copies the whole database.
const TIMEOUT: Duration = Duration::from_secs(180);

/// How etcd stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// Size of the database file in bytes.
    pub db_size: u64,
    /// Bytes of it that hold something.
    pub db_in_use: u64,
    /// `--quota-backend-bytes`.
    pub quota: u64,
    /// The current revision.
    pub revision: u64,
    /// Alarms that are raised: (member, kind such as `NOSPACE` or `CORRUPT`).
    pub alarms: Vec<(u64, String)>,
}

impl Status {
    /// Whether writes are refused for want of space.
    pub fn out_of_space(&self) -> bool {
        self.alarms.iter().any(|(_, kind)| kind == "NOSPACE")
    }

    /// The condition `EtcdSpace`: whether it holds, why (one word), and a sentence.
    pub fn space_condition(&self) -> (bool, &'static str, String) {
        let mib = |bytes: u64| bytes >> 20;
        let (size, used, quota) = (mib(self.db_size), mib(self.db_in_use), mib(self.quota));
        if self.out_of_space() {
            let message = format!(
                "etcd refuses writes: its data takes {used} MiB of a quota of {quota} MiB. Delete objects that are not needed \
                 (kubectl delete works); space is freed and writes resume within minutes of it"
            );
            (false, "OutOfSpace", message)
        } else if self.alarms.iter().any(|(_, kind)| kind == "CORRUPT") {
            (false, "Corrupt", "etcd reports that its data is corrupt; it must be restored from a backup".to_owned())
        } else if self.db_in_use >= self.quota / 10 * 9 {
            (true, "NearlyFull", format!("etcd's data takes {used} MiB of a quota of {quota} MiB; at the quota it refuses writes"))
        } else {
            (true, "Enough", format!("etcd's data takes {used} MiB ({size} MiB with gaps) of a quota of {quota} MiB"))
        }
    }
}

/// What is to be done for an etcd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Upkeep {
    /// Nothing.
    Nothing,
    /// It is mostly gaps: defragment it (reads and writes wait meanwhile).
    Defragment,
    /// Writes are refused: [`Maintenance::recover_space`].
    RecoverSpace,
}

/// What is to be done. Compaction is the API server's (every 5 minutes), so gaps are what remains to be looked after: when over half of a
/// database worth the pause is gaps, or when gaps alone bring it near its quota.
pub fn upkeep(status: &Status) -> Upkeep {
    let gaps = status.db_size.saturating_sub(status.db_in_use);
    let mostly_gaps = status.db_size > WORTH_DEFRAGMENTING && status.db_in_use < status.db_size / 2;
    let pressed = status.db_size >= status.quota / 5 * 4 && gaps >= status.quota / 5;
    if status.out_of_space() {
        Upkeep::RecoverSpace
    } else if mostly_gaps || pressed {
        Upkeep::Defragment
    } else {
        Upkeep::Nothing
    }
}

/// How a recovery ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recovery {
    /// Writes are taken again.
    Recovered(Status),
    /// What is stored fills the quota: the alarm stays until something is deleted.
    StillFull(Status),
}

/// The maintenance calls of one etcd member.
pub struct Maintenance {
    http: reqwest::Client,
    base: String,
}

impl Maintenance {
    /// For the etcd at `address`; all PEM, the certificate being one of etcd's authority for clients.
    pub fn new(address: IpAddr, etcd_ca: &str, client_cert: &str, client_key: &str) -> anyhow::Result<Self> {
        let identity = Identity { cert_pem: client_cert, key_pem: client_key };
        let http = component_http::client(etcd_ca, Some(identity), TIMEOUT)?;
        Ok(Self { http, base: format!("https://{}/v3", SocketAddr::new(address, ports::ETCD_CLIENT)) })
    }

    /// How it stands.
    pub async fn status(&self) -> anyhow::Result<Status> {
        let (status, alarms) =
            tokio::try_join!(self.call("maintenance/status", json!({})), self.call("maintenance/alarm", json!({ "action": "GET" })),)?;
        parse_status(status, alarms)
    }

    /// Returns the gaps of its database to the file system. Reads and writes wait meanwhile.
    pub async fn defragment(&self) -> anyhow::Result<()> {
        self.call("maintenance/defragment", json!({})).await.map(|_| ())
    }

    /// The way out of NOSPACE: drops history, closes gaps, and takes the alarm back where that freed enough. Safe to repeat.
    pub async fn recover_space(&self) -> anyhow::Result<Recovery> {
        let before = self.status().await?;
        // Clients that watch from an older revision list again, which they all know how to do (410 Gone).
        let compacted = self.call("kv/compaction", json!({ "revision": before.revision.to_string(), "physical": true })).await;
        if let Err(error) = compacted
            && !format!("{error:#}").contains("required revision has been compacted")
        {
            return Err(error);
        }
        // What compaction freed shows with the next commit (`--backend-batch-interval`, 100 ms).
        tokio::time::sleep(Duration::from_millis(250)).await;
        let compacted = self.status().await?;
        if !frees_enough(compacted.db_in_use, compacted.quota) {
            // Defragmentation would stop reads for nothing.
            return Ok(Recovery::StillFull(compacted));
        }
        self.defragment().await?;
        let after = self.status().await?;
        if !frees_enough(after.db_size, after.quota) {
            return Ok(Recovery::StillFull(after));
        }
        for (member, kind) in &after.alarms {
            if kind == "NOSPACE" {
                let disarm = json!({ "action": "DEACTIVATE", "memberID": member.to_string(), "alarm": "NOSPACE" });
                self.call("maintenance/alarm", disarm).await?;
            }
        }
        self.status().await.map(Recovery::Recovered)
    }

    async fn call(&self, method: &str, body: Value) -> anyhow::Result<Value> {
        let request = self.http.post(format!("{}/{method}", self.base)).json(&body);
        let response = request.send().await.map_err(|e| anyhow::anyhow!("etcd: {method}: {}", component_http::why(&e)))?;
        let (status, text) = component_http::text(response).await?;
        anyhow::ensure!(status == 200, "etcd refuses {method} ({status}): {}", text.chars().take(500).collect::<String>());
        serde_json::from_str(&text).with_context(|| format!("etcd's answer to {method} is no JSON"))
    }
}

/// Whether a database of `size` bytes leaves so much free that the alarm would not be raised again by the next write.
fn frees_enough(size: u64, quota: u64) -> bool {
    size < quota / 20 * 19
}

/// From the gateway's JSON (64-bit numbers are strings there, and a zero is left out).
fn parse_status(status: Value, alarms: Value) -> anyhow::Result<Status> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct StatusResponse {
        header: Header,
        #[serde(default)]
        db_size: Number,
        #[serde(default)]
        db_size_in_use: Number,
        #[serde(default)]
        db_size_quota: Number,
    }
    #[derive(Deserialize)]
    struct Header {
        #[serde(default)]
        revision: Number,
    }
    #[derive(Deserialize)]
    struct AlarmResponse {
        #[serde(default)]
        alarms: Vec<AlarmMember>,
    }
    #[derive(Deserialize)]
    struct AlarmMember {
        #[serde(rename = "memberID", default)]
        member: Number,
        #[serde(default)]
        alarm: String,
    }
    let status: StatusResponse = serde_json::from_value(status).context("etcd's status is not what etcd 3.6 says")?;
    let alarms: AlarmResponse = serde_json::from_value(alarms).context("etcd's alarms are not what etcd 3.6 says")?;
    anyhow::ensure!(status.db_size_quota.0 > 0, "etcd tells no quota; etcd 3.6 or newer is needed");
    Ok(Status {
        db_size: status.db_size.0,
        db_in_use: status.db_size_in_use.0,
        quota: status.db_size_quota.0,
        revision: status.header.revision.0,
        alarms: alarms.alarms.into_iter().map(|a| (a.member.0, a.alarm)).collect(),
    })
}

/// A 64-bit number, written as a string by the gateway.
#[derive(Default)]
struct Number(u64);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(text) => text.parse().map(Self).map_err(serde::de::Error::custom),
            Value::Number(number) => number.as_u64().map(Self).ok_or_else(|| serde::de::Error::custom("a negative number")),
            other => Err(serde::de::Error::custom(format!("{other} is no number"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn status(db_size: u64, db_in_use: u64) -> Status {
        Status { db_size, db_in_use, quota: 1000 * MIB, revision: 7, alarms: Vec::new() }
    }

    #[test]
    fn defragments_what_is_mostly_gaps_and_worth_it() {
        assert_eq!(upkeep(&status(65 * MIB, 32 * MIB)), Upkeep::Defragment);
        assert_eq!(upkeep(&status(65 * MIB, 33 * MIB)), Upkeep::Nothing, "half is in use");
        assert_eq!(upkeep(&status(64 * MIB, MIB)), Upkeep::Nothing, "too small to be worth the pause");
        assert_eq!(upkeep(&status(900 * MIB, 600 * MIB)), Upkeep::Defragment, "gaps press it to its quota");
        assert_eq!(upkeep(&status(900 * MIB, 800 * MIB)), Upkeep::Nothing, "there is little to gain");
        assert_eq!(upkeep(&status(0, 0)), Upkeep::Nothing);
    }

    #[test]
    fn an_alarm_precedes_all_else() {
        let full = Status { alarms: vec![(9, "NOSPACE".into())], ..status(MIB, MIB) };
        assert_eq!(upkeep(&full), Upkeep::RecoverSpace);
        let corrupt = Status { alarms: vec![(9, "CORRUPT".into())], ..status(MIB, MIB) };
        assert_eq!(upkeep(&corrupt), Upkeep::Nothing);
        assert_eq!(corrupt.space_condition().1, "Corrupt");
    }

    #[test]
    fn the_condition_says_what_to_do() {
        assert!(status(MIB, MIB).space_condition().0);
        assert_eq!(status(950 * MIB, 910 * MIB).space_condition().1, "NearlyFull");
        let full = Status { alarms: vec![(9, "NOSPACE".into())], ..status(1000 * MIB, 990 * MIB) };
        let (holds, reason, message) = full.space_condition();
        assert!(!holds && reason == "OutOfSpace" && message.contains("kubectl delete"), "{message}");
    }

    #[test]
    fn an_alarm_is_taken_back_only_where_the_next_write_would_not_raise_it() {
        assert!(frees_enough(949 * MIB, 1000 * MIB));
        assert!(!frees_enough(950 * MIB, 1000 * MIB));
    }

    #[test]
    fn reads_numbers_that_are_strings() {
        let parsed = parse_status(
            json!({"header": {"revision": "42"}, "dbSize": "20480", "dbSizeInUse": "16384", "dbSizeQuota": "2147483648"}),
            json!({"alarms": [{"memberID": "18446744073709551615", "alarm": "NOSPACE"}]}),
        )
        .unwrap();
        assert_eq!((parsed.db_size, parsed.db_in_use, parsed.quota, parsed.revision), (20480, 16384, 2_147_483_648, 42));
        assert_eq!(parsed.alarms, [(u64::MAX, "NOSPACE".to_owned())]);
        assert!(parsed.out_of_space());
        assert!(parse_status(json!({"header": {}}), json!({})).is_err(), "an etcd that tells no quota");
    }
}
