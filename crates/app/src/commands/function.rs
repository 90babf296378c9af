//! `flashyard function`.

use super::{absolute, run};
use crate::cli::{FunctionArgs, FunctionCommand};
use crate::control::{FunctionChange, KindName, Page, Request};
use crate::failure::{Failure, Invalid};
use crate::spec::FunctionSpec;

/// `flashyard function …`.
pub fn function(args: FunctionArgs) -> Result<(), Failure> {
    let request = match args.command {
        FunctionCommand::List => Request::List(KindName::Function, Page::first()),
        FunctionCommand::Show { name } => Request::Show(KindName::Function, name),
        FunctionCommand::Delete { name, yes } => Request::DeleteFunction {
            name,
            connected: yes,
        },
        FunctionCommand::Set {
            name,
            access,
            doorbells,
            cores,
        } => {
            let change = FunctionChange {
                mode: access.mode,
                owner: access.owner,
                group: access.group,
                doorbells,
                cores,
            };
            if change == FunctionChange::default() {
                return Err(Invalid::NoPermissions.into());
            }
            Request::SetFunction { name, change }
        }
        FunctionCommand::Create {
            name,
            tenant,
            count,
            socket,
            access,
            doorbells,
            cores,
        } => {
            let socket = socket.map(|path| absolute(&path)).transpose()?;
            let one = |name| FunctionSpec {
                name,
                tenant: tenant.clone(),
                socket: socket.clone(),
                mode: access.mode,
                owner: access.owner.clone(),
                group: access.group.clone(),
                doorbells,
                cores,
            };
            Request::CreateFunctions(match count {
                None => vec![one(name)],
                Some(count) => (1..=count)
                    .map(|number| one(format!("{name}-{number}")))
                    .collect(),
            })
        }
    };
    run(&args.reach, &request)
}
