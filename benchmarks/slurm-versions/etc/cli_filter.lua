-- Refuses commands for the partition "filtered" before the controller is asked.
function slurm_cli_setup_defaults(options, early)
    return slurm.SUCCESS
end

function slurm_cli_pre_submit(options, offset)
    if options["partition"] ~= "filtered" then
        return slurm.SUCCESS
    end
    if options["constraint"] == nil then
        slurm.log_error("Job request does not name a kind of node.")
        slurm.log_error("Please add -C native or -C virtual.")
        return slurm.ERROR
    end
    slurm.log_info("your job will be charged to the account of the day")
    return slurm.SUCCESS
end

function slurm_cli_post_submit(offset, job, step)
    return slurm.SUCCESS
end

return slurm.SUCCESS
