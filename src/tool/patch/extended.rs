//! A file's access list and other extended attributes, carried over to the file that takes its place.
//!
//! Who may read a file is part of it: a replacement without the list would be open to those whom the list kept out.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;

use rustix::fs::{XattrFlags, fgetxattr, flistxattr, fremovexattr, fsetxattr};
use rustix::io::Errno;

/// The most that a system keeps of the names of one file's attributes, and of the value of one.
const NAMES_BYTES_MAX: usize = 64 * 1024;
const VALUE_BYTES_MAX: usize = 64 * 1024;

/// The list of who may do what, which a new file can have from its folder.
const ACCESS_LIST: &CStr = c"system.posix_acl_access";

/// What speaks for the very bytes of a file, or lends its program rights: the system drops it when a file is written.
const OF_CONTENT: [&CStr; 3] = [c"security.capability", c"security.evm", c"security.ima"];

/// Names and values.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Extended(Vec<(CString, Vec<u8>)>);

impl Extended {
    /// Those of an opened file; none where its file system has no such thing.
    pub(super) fn load(file: &File) -> io::Result<Self> {
        let mut found = Vec::new();
        for name in names(file)? {
            if OF_CONTENT.contains(&name.as_c_str()) {
                continue;
            }
            let mut value = vec![0; VALUE_BYTES_MAX];
            match fgetxattr(file, name.as_c_str(), value.as_mut_slice()) {
                Ok(length) => value.truncate(length),
                // It went, or is not for us to read: then it cannot be ours to keep either, and `give` will tell.
                Err(Errno::NODATA) => continue,
                Err(error) => return Err(told(&name, error)),
            }
            found.push((name, value));
        }
        Ok(Self(found))
    }

    /// Gives them to a file that is to take the place, and takes from it the access list that it has from its folder.
    pub(super) fn give(&self, file: &File) -> io::Result<()> {
        let present = Self::load(file)?;
        for (name, value) in &self.0 {
            if present.0.iter().any(|(other, held)| other == name && held == value) {
                continue;
            }
            fsetxattr(file, name.as_c_str(), value, XattrFlags::empty()).map_err(|error| told(name, error))?;
        }
        let is_unwanted = |(name, _): &&(CString, Vec<u8>)| {
            name.as_c_str() == ACCESS_LIST && !self.0.iter().any(|(other, _)| other == name)
        };
        if present.0.iter().any(|attribute| is_unwanted(&attribute)) {
            fremovexattr(file, ACCESS_LIST).map_err(|error| told(ACCESS_LIST, error))?;
        }
        Ok(())
    }
}

fn told(name: &CStr, error: Errno) -> io::Error {
    let error = io::Error::from(error);
    io::Error::new(error.kind(), format!("its attribute {} cannot be kept: {error}", name.to_string_lossy()))
}

fn names(file: &File) -> io::Result<Vec<CString>> {
    let mut names = vec![0_u8; NAMES_BYTES_MAX];
    match flistxattr(file, names.as_mut_slice()) {
        Ok(length) => names.truncate(length),
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    }
    Ok(names
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .filter_map(|name| CString::new(name).ok())
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An access list as the system keeps it: version 2, then tag, rights and number of each entry.
    fn access_list(rights_of_user_7: u16) -> Vec<u8> {
        let entries: [(u16, u16, u32); 5] =
            [(1, 6, u32::MAX), (2, rights_of_user_7, 7), (4, 4, u32::MAX), (16, 4, u32::MAX), (32, 0, u32::MAX)];
        let mut list = 2_u32.to_le_bytes().to_vec();
        for (tag, rights, number) in entries {
            list.extend(tag.to_le_bytes());
            list.extend(rights.to_le_bytes());
            list.extend(number.to_le_bytes());
        }
        list
    }

    #[test]
    fn attributes_go_over_to_the_file_that_takes_the_place() {
        let folder = tempfile::tempdir().unwrap();
        let old = File::create(folder.path().join("old")).unwrap();
        let new = File::create(folder.path().join("new")).unwrap();
        let wanted: [(&CStr, Vec<u8>); 2] = [(ACCESS_LIST, access_list(0)), (c"user.note", b"kept".to_vec())];
        for (name, value) in &wanted {
            if fsetxattr(&old, *name, value, XattrFlags::empty()) == Err(Errno::OPNOTSUPP) {
                return;
            }
        }
        // As if from the folder: an access list that is another.
        fsetxattr(&new, ACCESS_LIST, &access_list(4), XattrFlags::empty()).unwrap();
        let extended = Extended::load(&old).unwrap();
        extended.give(&new).unwrap();
        assert_eq!(Extended::load(&new).unwrap(), extended);
        // One that had no list gets none from its folder.
        Extended::default().give(&new).unwrap();
        assert!(!Extended::load(&new).unwrap().0.iter().any(|(name, _)| name.as_c_str() == ACCESS_LIST));
    }
}
