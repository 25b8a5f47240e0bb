"""What stands in for programs, and for what hosts print."""

#: Written by hand in the form of three commands of esxcli: no ESXi host printed it.
ESXCLI = """   Product: VMware ESXi
   Version: 8.0.3
   Build: Releasebuild-24022510
   Update: 3
   Patch: 35
   CPU Packages: 2
   CPU Cores: 64
   CPU Threads: 128
   Hyperthreading Active: true
   Hyperthreading Supported: true
   Hyperthreading Enabled: true
   HV Support: 3
   HV Replay Capable: true
   HV Replay Disabled Reasons:
   Physical Memory: 549655752704 Bytes
   Reliable Memory: 0 Bytes
   NUMA Node Count: 2
"""


def write_program(file, text):
    """Write an executable file and return its path."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    file.chmod(0o755)
    return file
