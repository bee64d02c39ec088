//! `routes.*`: the routes that the agent keeps. Imports nothing of ours beside the section.

use std::path::PathBuf;

use ipnet::IpNet;

use crate::config::section::section;
use crate::domain::Invalid;

section! {
    /// The routes to tenants' pods that the agent role keeps on this host.
    pub struct Routes {
        /// The kernel's protocol number of our routes; every route with it in our table is ours.
        protocol: u8 = 186,
        /// The table that they stand in (254 is `main`).
        table: u32 = 254,
        /// The metric of our routes; absent: the kernel's own.
        metric: Option<u32> = None,
        /// A file with the plan, in place of the platform's.
        plan_file: Option<PathBuf> = None,
        /// The range that clusters' pod ranges are cut from where routes lead to pods.
        pod_cidr_pool: Option<IpNet> = None,
    }
}

impl Routes {
    /// The protocol is nobody else's.
    pub fn validate(&self, problems: &mut Vec<Invalid>) {
        // /etc/iproute2/rt_protos: 0 to 4 are the kernel's, administrators' and boot's own; 16 DHCP, 186 to 192 routing daemons by custom.
        if self.protocol <= 4 || self.protocol == 16 {
            let message = format!("{} marks routes of the kernel, of administrators or of DHCP; use one such as 186", self.protocol);
            problems.push(Invalid::new("routes.protocol", message));
        }
        if self.table == 0 || self.table == 255 {
            problems.push(Invalid::new("routes.table", format!("{} is the kernel's; use 254 (main) or one of your own", self.table)));
        }
    }
}
