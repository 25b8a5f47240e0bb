"""Pages two and three of the tutorial, run from the pages: each command, and the words that it prints."""

import re
import shutil

import pytest
from test_system import INIT, ROOT, show

from made_programs import ESXCLI, write_program
from made_runs import keep, session_of

PARTS = re.compile(r"^`([\w./-]+)`\n\n```\w+\n(.*?)```$|^```console\n(.*?)```$", re.MULTILINE | re.DOTALL)
#: Answers in the place of the hosts, which a test states.
SSH = """#!/bin/sh
[ "$2" != sh ] || cat > /dev/null
case $2 in cat*) cat "$FAKE_SLURM/vmx" ;; *) cat "$FAKE_SLURM/host.${1#root@}" ;; esac
"""
KVM_GUEST = {
    "/sys/class/dmi/id/sys_vendor": "Red Hat",
    "/sys/class/dmi/id/product_name": "KVM",
    "/sys/class/dmi/id/bios_vendor": "SeaBIOS",
    "/sys/class/dmi/id/bios_version": "1.16.3-2.el9",
    "/sys/devices/system/clocksource/clocksource0/available_clocksource": "tsc kvm-clock acpi_pm",
}
KVM_HOST = """/sys/module/kvm/parameters/halt_poll_ns:200000
/sys/module/kvm_intel/parameters/ept:Y
/proc/cmdline:BOOT_IMAGE=/vmlinuz ro intel_iommu=on iommu=pt
/proc/11/cmdline:/usr/libexec/qemu-kvm
/proc/11/cmdline:-name
/proc/11/cmdline:guest={vm},debug-threads=on
/proc/11/exe:/usr/libexec/qemu-kvm
/proc/11/package:qemu-kvm-core 8.2.0-11.el9
/virsh/1:<domain type='kvm'><name>{vm}</name><memory unit='MiB'>175781</memory><vcpu>8</vcpu>
/virsh/1:<memoryBacking><hugepages/></memoryBacking><cputune>{pins}</cputune>
/virsh/1:<numatune><memory mode='strict' nodeset='0-1'/>
/virsh/1:<memnode cellid='0' mode='strict' nodeset='0'/>
/virsh/1:<memnode cellid='1' mode='strict' nodeset='1'/></numatune>
/virsh/1:<os><type machine='pc-q35-rhel9.4.0'>hvm</type></os>
/virsh/1:<cpu mode='host-passthrough'><numa><cell id='0'/><cell id='1'/></numa></cpu></domain>
virtqual-look/1
"""
ESX_HOST = ESXCLI.replace("Threads: 128", "Threads: 8").replace("549655752704", "201728000000")
VMX = """virtualHW.version = "21"
numvcpus = "8"
memSize = "175781"
sched.mem.min = "175781"
numa.vcpu.preferHT = "TRUE"
sched.cpu.latencySensitivity = "high"
"""


@pytest.fixture
def centre(site):
    """Return the site with 8 nodes of each side, and hosts that answer by SSH."""
    site.env["FAKE_NODES"] = "8"
    site.env["PATH"] = f"{site.path}/bin:{site.env['PATH']}"
    show(site, "bare", "bare.look")
    write_program(site.path / "bin/ssh", SSH)
    return site


def put_in_place(site, text):
    """Return a page's text with the paths and names that the stand-ins have."""
    for pattern, name in (
        ("/shared/virtqual", str(site.path)),
        (r"\bvm\{h:02\}", "cloud-{h}"),
        (r"\bvm0(\d)", r"cloud-\1"),
        (r"\bbare0(\d)", r"bare-\1"),
        (r"(--virtual |partition |\[)vm\b", r"\1cloud"),
    ):
        text = re.sub(pattern, name, text)
    return text


def run_page(site, text):
    for name, content, console in PARTS.findall(put_in_place(site, text)):
        if name == "site/systems/mysite.py":
            file = site.path / name
            left = re.compile(r' *"hypervisor": \{\n.*"nodes_of_hosts": "TODO: [^\n]*\n', re.DOTALL)
            completed, count = left.subn(lambda _, lines=content: lines, file.read_text("utf-8"))
            assert count == 1
            file.write_text(completed, "utf-8")
        elif name:
            (site.path / name).write_text(content, "utf-8")
        for command, output in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", console, re.MULTILINE):
            assert max(map(len, output.splitlines()), default=0) <= 80 + len(str(site.path))
            assert_printed(output, site.words(site.run("bash", "-c", command)))


def assert_printed(output, printed):
    """Assert that the words of a page were printed in this order; `...` stands for any others."""
    place = 0
    for part in output.split("..."):
        words = " ".join(part.split())
        assert words in printed[place:], f"not printed: {words}\n\nprinted: {printed}"
        place = printed.index(words, place) + len(words)


def test_the_page_about_kvm_hosts(centre):
    show(centre, "cloud", "guest.look", **KVM_GUEST)
    look = (ROOT / "tests/faults/preflight/bare.look").read_text("utf-8").splitlines()
    lines = [line for line in look if not line.startswith(("virtqual-look", "/proc/cmdline"))]
    pins = "".join(f"<vcpupin vcpu='{cpu}' cpuset='{cpu}'/>" for cpu in range(8))
    for number in range(1, 9):
        text = KVM_HOST.format(vm=f"cloud-{number}", pins=pins)
        centre.fault(f"host.kvm0{number}", "\n".join(["virtqual-look", *lines, text]))
    run_page(centre, (ROOT / "docs/add-kvm-hosts.md").read_text("utf-8"))


def test_the_page_about_esxi_hosts(centre):
    show(centre, "cloud", "guest.look")
    centre.fault("vmx", VMX)
    for number in range(1, 9):
        centre.fault(f"host.esx0{number}", ESX_HOST)
    page, new_build = re.split(
        r"(?=^\*\*8\.)", (ROOT / "docs/add-esxi-hosts.md").read_text("utf-8"), flags=re.M
    )
    centre.virtqual(*INIT, "--account", "hpcops", code=0)
    run_page(centre, page)
    centre.fault("host.esx03", ESX_HOST.replace("24022510", "24280767"))
    run_page(centre, new_build)


@pytest.mark.skipif(not shutil.which("jq"), reason="jq is not here")
@pytest.mark.parametrize(
    ("code", "outcomes", "said"),
    [
        (0, {"WITHIN": 2}, "within budget"),
        (4, {"INVALID": 1, "WITHIN": 1}, "no answer: mend what is refused"),
        (4, {"INVALID": 1, "OVER": 1}, "slower than allowed: block the build"),
    ],
)
def test_a_ci_job_sees_what_is_over_beside_what_is_refused(site, code, outcomes, said):
    """Exit code 4 goes before 1."""
    (script,) = re.findall(
        r"^```sh\n(.*?)^```$", (ROOT / "docs/exit-codes.md").read_text("utf-8"), re.M | re.S
    )
    session = session_of([], name="20260101-000000-mysite", outcome="INVALID", all_outcomes=outcomes)
    directory = keep(session, site.path / "state/sessions")
    stand_in = f'virtqual() {{ echo "results: {directory}"; return {code}; }}\n'
    done = site.run("bash", "-ec", f"{stand_in}{script}")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, said)
