//! Whether the programs that control planes run are complete.

use super::{AssetsReport, Context, Finding};

const CHECK: &str = "assets";

pub(super) fn check(context: &Context) -> Vec<Finding> {
    context.assets.as_ref().map(judge).unwrap_or_default()
}

fn judge(report: &AssetsReport) -> Vec<Finding> {
    let remedy = "Fetch what is missing, verified: `kubebyon assets fetch`.";
    if !report.problems.is_empty() {
        return report.problems.iter().map(|problem| Finding::failed(CHECK, problem, remedy)).collect();
    }
    if report.versions.is_empty() {
        return vec![Finding::failed(CHECK, "There are no Kubernetes programs yet, so no cluster can run.", remedy)];
    }
    vec![Finding::ok(CHECK, format!("The programs of Kubernetes {} are complete.", report.versions.join(", ")))]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Status;

    #[test]
    fn each_problem_is_a_finding() {
        let complete = AssetsReport { versions: vec!["1.36.3".into()], problems: vec![] };
        assert_eq!(judge(&complete)[0].status, Status::Ok);
        let damaged = AssetsReport { problems: vec!["etcd is damaged".into(), "kubectl is missing".into()], ..complete };
        assert_eq!(
            judge(&damaged).iter().map(|finding| finding.message.as_str()).collect::<Vec<_>>(),
            ["etcd is damaged", "kubectl is missing"]
        );
        assert_eq!(judge(&AssetsReport::default())[0].status, Status::Failed);
    }
}
